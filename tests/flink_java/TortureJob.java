import java.lang.reflect.Method;
import java.math.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.atomic.*;
import org.apache.flink.api.common.eventtime.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.java.typeutils.*;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.*;
import org.apache.flink.streaming.api.functions.co.*;
import org.apache.flink.streaming.api.functions.windowing.*;
import org.apache.flink.streaming.api.operators.*;
import org.apache.flink.streaming.api.windowing.assigners.*;
import org.apache.flink.streaming.api.windowing.evictors.*;
import org.apache.flink.streaming.api.windowing.triggers.*;
import org.apache.flink.streaming.api.windowing.windows.*;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.types.*;
import org.apache.flink.types.Either;
import org.apache.flink.util.Collector;

/**
 * Makes the savepoints in tests/data/flink/versions.tar.xz: every kind of keyed and operator state, keys of some
 * thirty types, windows, joins, timers. What each key holds follows from its number; the state stays as it is once
 * LIMIT numbers went through. Compiles and runs with Flink 1.14 to 2.2 (flink-streaming-java, flink-clients, the state
 * backend and flink-statebackend-changelog on the class path): what was renamed in between is called by reflection.
 *
 * <p>Arguments: an empty directory; CANONICAL, NATIVE, both with a comma, or none; then options of Flink as key=value,
 * and p=, max=, limit= for the parallelism, the max parallelism and LIMIT.
 */
public class TortureJob {
  static final AtomicLong steps = new AtomicLong();
  static int LIMIT = 48, KEYS = 12;

  public enum Color {
    RED,
    GREEN,
    BLUE
  }

  public static class P {
    public int i;
    public String s;
    public Double d;
    public List<String> l;
    public Map<String, Long> m;
    public Color e;
    public In inner;
    public byte[] b;
    public Tuple2<Long, String> t;
    public LocalDate day;
    public BigDecimal big;

    public P() {}

    public P(int k, boolean in) {
      i = k;
      s = k % 2 == 0 ? null : "s\uD83D\uDE00" + k;
      d = k % 3 == 0 ? null : k / 3.0;
      l = new ArrayList<>(Arrays.asList("a" + k, "", "\u20ac"));
      m = new HashMap<>();
      m.put("m" + k, (long) k);
      e = Color.values()[k % 3];
      inner = in ? new In(k) : null;
      b = k % 4 == 0 ? null : new byte[] {1, (byte) k, -1};
      t = Tuple2.of((long) k, "t" + k);
      day = k % 5 == 0 ? null : LocalDate.of(2024, 1, 1 + k % 28);
      big = k % 2 == 0 ? null : new BigDecimal("-" + k + ".0050");
    }
  }

  public static class In {
    public long z;
    public String y;
    public Tuple2<Integer, String> w;

    public In() {}

    public In(int k) {
      z = k;
      y = k % 2 == 0 ? null : "y";
      w = Tuple2.of(k, "w");
    }
  }

  public static class Q extends P {
    public long extra;

    public Q() {}

    public Q(int k) {
      super(k, false);
      extra = -k;
    }
  }

  public static class PK {
    public String a;
    public long n;
    public Color c;

    public PK() {}

    public PK(int k) {
      a = name(k);
      n = k;
      c = Color.values()[k % 3];
    }

    public int hashCode() {
      return a.hashCode() * 31 + (int) n;
    }

    public boolean equals(Object o) {
      return o instanceof PK && ((PK) o).a.equals(a) && ((PK) o).n == n;
    }
  }

  static String name(int k) {
    switch (k) {
      case 0:
        return "";
      case 1:
        return "\uD83D\uDE00";
      case 2:
        return "a\u0000b";
      case 3:
        return "x" + String.join("", Collections.nCopies(200, "y"));
      case 4:
        return "\u00e9\u20ac";
      case 5:
        return "\uD83D"; // half a pair
      case 6:
        return "z" + String.join("", Collections.nCopies(255, "\u20ac"));
      default:
        return "key-" + k;
    }
  }

  static Object timed(Class<?> c, String method, long... millis) throws Exception {
    for (Method m : c.getMethods()) {
      if (!m.getName().equals(method) || m.getParameterCount() != millis.length) continue;
      Object[] args = new Object[millis.length];
      boolean ok = true;
      for (int i = 0; i < millis.length; i++) {
        Class<?> p = m.getParameterTypes()[i];
        if (p == Duration.class) args[i] = Duration.ofMillis(millis[i]);
        else if (p.getSimpleName().equals("Time"))
          args[i] = p.getMethod("milliseconds", long.class).invoke(null, millis[i]);
        else ok = false;
      }
      if (ok) return m.invoke(null, args);
    }
    throw new IllegalStateException(c + "." + method);
  }

  static <D extends StateDescriptor<?, ?>> D ttl(D d) throws Exception {
    d.enableTimeToLive(
        ((StateTtlConfig.Builder) timed(StateTtlConfig.class, "newBuilder", 86_150_000L)).build());
    return d;
  }

  static TypeInformation<P> pojo() {
    return TypeInformation.of(P.class);
  }

  public static class Slow extends RichMapFunction<Long, Long> implements java.io.Serializable {
    public Long map(Long x) throws Exception {
      if (x % 4 == 0) Thread.sleep(x < LIMIT ? 30 : 10);
      return x;
    }
  }

  public static class Limit implements FilterFunction<Long> {
    public boolean filter(Long x) {
      if (x < LIMIT) steps.incrementAndGet();
      return x < LIMIT;
    }
  }

  /** All kinds of keyed state. */
  public static class Kinds extends KeyedProcessFunction<String, Long, Long>
      implements CheckpointedFunction {
    transient ValueState<Integer> rounds;
    transient ValueState<P> pojo;
    transient ValueState<Color> color;
    transient ValueState<Row> row;
    transient ValueState<Tuple3<Long, String, int[]>> tuple;
    transient ListState<P> pojos;
    transient MapState<String, List<Long>> lists;
    transient MapState<Tuple2<String, Integer>, P> tuples;
    transient MapState<Long, String> nulls;
    transient ReducingState<Long> sum;
    transient AggregatingState<Long, String> agg;
    transient ValueState<String> tv;
    transient ListState<String> tl;
    transient MapState<String, Long> tm;
    transient ReducingState<Long> tr;
    transient AggregatingState<Long, String> ta;
    transient ListState<Either<Long, String>> eithers;
    transient ValueState<Long[]> boxed;
    transient ValueState<Boolean> gone;
    transient ListState<Long> emptied;
    transient MapState<Boolean, Instant> flags;
    transient ValueState<Object> any;
    transient ValueState<String> same;
    transient ValueState<P> ttlpojo;
    transient ListState<Long> opList;
    transient ListState<String> opUnion;
    transient BroadcastState<String, P> opBroadcast;
    transient boolean open;

    void start() throws Exception {
      RuntimeContext r = getRuntimeContext();
      rounds = r.getState(new ValueStateDescriptor<>("rounds", Types.INT));
      pojo = r.getState(new ValueStateDescriptor<>("pojo", pojo()));
      color = r.getState(new ValueStateDescriptor<>("color", TypeInformation.of(Color.class)));
      row =
          r.getState(
              new ValueStateDescriptor<>(
                  "row",
                  Types.ROW_NAMED(
                      new String[] {"a", "b", "c"},
                      Types.STRING,
                      Types.LONG,
                      Types.ROW(Types.INT, Types.STRING))));
      tuple =
          r.getState(
              new ValueStateDescriptor<>(
                  "tuple",
                  Types.TUPLE(Types.LONG, Types.STRING, Types.PRIMITIVE_ARRAY(Types.INT))));
      pojos = r.getListState(new ListStateDescriptor<>("pojos", pojo()));
      lists =
          r.getMapState(new MapStateDescriptor<>("lists", Types.STRING, Types.LIST(Types.LONG)));
      tuples =
          r.getMapState(
              new MapStateDescriptor<>("tuples", Types.TUPLE(Types.STRING, Types.INT), pojo()));
      nulls = r.getMapState(new MapStateDescriptor<>("nulls", Types.LONG, Types.STRING));
      sum = r.getReducingState(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
      agg =
          r.getAggregatingState(
              new AggregatingStateDescriptor<>(
                  "agg", new Agg(), Types.TUPLE(Types.LONG, Types.STRING)));
      tv = r.getState(ttl(new ValueStateDescriptor<>("ttl-value", Types.STRING)));
      tl = r.getListState(ttl(new ListStateDescriptor<>("ttl-list", Types.STRING)));
      tm = r.getMapState(ttl(new MapStateDescriptor<>("ttl-map", Types.STRING, Types.LONG)));
      tr =
          r.getReducingState(
              ttl(new ReducingStateDescriptor<>("ttl-reduce", Long::sum, Types.LONG)));
      ta =
          r.getAggregatingState(
              ttl(
                  new AggregatingStateDescriptor<>(
                      "ttl-agg", new Agg(), Types.TUPLE(Types.LONG, Types.STRING))));
      ttlpojo = r.getState(ttl(new ValueStateDescriptor<>("ttl-pojo", pojo())));
      eithers =
          r.getListState(
              new ListStateDescriptor<>("eithers", new EitherTypeInfo<>(Types.LONG, Types.STRING)));
      boxed = r.getState(new ValueStateDescriptor<>("boxed", Types.OBJECT_ARRAY(Types.LONG)));
      gone = r.getState(new ValueStateDescriptor<>("gone", Types.BOOLEAN));
      emptied = r.getListState(new ListStateDescriptor<>("emptied", Types.LONG));
      flags = r.getMapState(new MapStateDescriptor<>("flags", Types.BOOLEAN, Types.INSTANT));
      any = r.getState(new ValueStateDescriptor<>("any", new GenericTypeInfo<>(Object.class)));
      same = r.getState(new ValueStateDescriptor<>("same", Types.STRING));
      open = true;
    }

    public void snapshotState(FunctionSnapshotContext c) {}

    public void initializeState(FunctionInitializationContext c) throws Exception {
      opList =
          c.getOperatorStateStore().getListState(new ListStateDescriptor<>("same", Types.LONG));
      opUnion =
          c.getOperatorStateStore()
              .getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
      opBroadcast =
          c.getOperatorStateStore()
              .getBroadcastState(new MapStateDescriptor<>("broadcast", Types.STRING, pojo()));
    }

    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      if (!open) start();
      steps.incrementAndGet();
      int k = (int) (x % KEYS);
      int round = rounds.value() == null ? 0 : rounds.value();
      rounds.update(round + 1);
      if (round > 2) return;
      pojo.update(round == 0 ? new Q(k) : new P(k, k % 2 == 0));
      if (k % 4 == 0) pojo.update(new Q(k));
      color.update(Color.values()[(k + round) % 3]);
      Row r =
          Row.of(
              k % 2 == 0 ? null : "r" + k,
              k % 3 == 0 ? null : (long) k,
              k % 4 == 0 ? null : Row.of(k, null));
      if (k % 5 == 1) r.setKind(RowKind.DELETE);
      row.update(r);
      tuple.update(Tuple3.of((long) -k, "t" + round, new int[] {k, round}));
      pojos.add(new P(k, true));
      pojos.add(new P(round, false));
      lists.put("l" + round, new ArrayList<>(Arrays.asList(1L, (long) k)));
      lists.put("", new ArrayList<>());
      if (round == 1) lists.remove("l0");
      tuples.put(Tuple2.of("u" + round, k), round == 2 ? null : new P(k, false));
      nulls.put((long) round, round % 2 == 0 ? null : "v" + k);
      sum.add((long) k);
      agg.add((long) k);
      tv.update("tv" + k);
      tl.add("tl" + round);
      tl.addAll(Arrays.asList("", "x,"));
      tm.put("tm" + round, (long) k);
      tr.add((long) k);
      ta.add((long) k);
      ttlpojo.update(new P(k, true));
      eithers.add(round == 0 ? Either.Left((long) k) : Either.Right("e" + k));
      boxed.update(new Long[] {null, (long) k});
      if (round == 0) {
        gone.update(true);
        emptied.add(1L);
      } else {
        gone.clear();
        emptied.update(new ArrayList<>());
      }
      flags.put(round == 0, Instant.ofEpochSecond(k, round));
      any.update(new ArrayList<>(Arrays.asList("a", 1, (long) k)));
      same.update("same" + k);
      opList.add(x);
      opUnion.add("u" + x);
      if (round == 0 && k == 0) {
        opBroadcast.put("b", new P(1, true));
      }
      c.timerService().registerEventTimeTimer(1_000_000L + x);
      c.timerService().registerEventTimeTimer(2_000_000L + k);
      c.timerService().registerProcessingTimeTimer(4_000_000_000_000L + k);
      if (round == 1) c.timerService().deleteEventTimeTimer(2_000_000L + k);
      out.collect(x);
    }
  }

  public static class Agg implements AggregateFunction<Long, Tuple2<Long, String>, String> {
    public Tuple2<Long, String> createAccumulator() {
      return Tuple2.of(0L, "");
    }

    public Tuple2<Long, String> add(Long x, Tuple2<Long, String> a) {
      return Tuple2.of(a.f0 + x, a.f1 + ".");
    }

    public String getResult(Tuple2<Long, String> a) {
      return a.f1 + a.f0;
    }

    public Tuple2<Long, String> merge(Tuple2<Long, String> a, Tuple2<Long, String> b) {
      return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
    }
  }

  /** The same small states under any key. */
  public static class AnyKey<K> extends KeyedProcessFunction<K, Long, Long> {
    transient ValueState<Long> v;
    transient MapState<String, Long> m;
    transient ListState<String> l;
    transient boolean open;

    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      if (!open) {
        v = getRuntimeContext().getState(new ValueStateDescriptor<>("v", Types.LONG));
        m =
            getRuntimeContext()
                .getMapState(new MapStateDescriptor<>("m", Types.STRING, Types.LONG));
        l = getRuntimeContext().getListState(new ListStateDescriptor<>("l", Types.STRING));
        open = true;
      }
      steps.incrementAndGet();
      v.update((v.value() == null ? 0 : v.value()) + 1);
      m.put("m" + x % 3, x);
      l.add("l" + x);
      c.timerService().registerEventTimeTimer(1_000_000L + x);
    }
  }

  /**
   * State whose namespaces are texts, so that the ends of keys and namespaces are not told by their
   * lengths.
   */
  public static class Named extends AbstractStreamOperator<Long>
      implements OneInputStreamOperator<Long, Long>, Triggerable<String, String> {
    transient InternalTimerService<String> timers;

    public void open() throws Exception {
      super.open();
      timers = getInternalTimerService("named", StringSerializer.INSTANCE, this);
    }

    public void onEventTime(InternalTimer<String, String> t) {}

    public void onProcessingTime(InternalTimer<String, String> t) {}

    public void processElement(StreamRecord<Long> e) throws Exception {
      steps.incrementAndGet();
      long x = e.getValue();
      String ns = name((int) (x / KEYS % 7));
      ValueState<Long> v =
          getPartitionedState(
              ns, StringSerializer.INSTANCE, new ValueStateDescriptor<>("nv", Types.LONG));
      v.update(x);
      MapState<String, Long> m =
          getPartitionedState(
              ns,
              StringSerializer.INSTANCE,
              new MapStateDescriptor<>("nm", Types.STRING, Types.LONG));
      m.put("m" + x % 2, x);
      m.put("", -x);
      ListState<String> l =
          getPartitionedState(
              ns, StringSerializer.INSTANCE, new ListStateDescriptor<>("nl", Types.STRING));
      l.add("x,");
      l.add("" + x);
      timers.registerEventTimeTimer(ns, 1_000_000L + x);
    }
  }

  public static class Win
      extends ProcessWindowFunction<Long, String, Tuple2<String, Long>, TimeWindow> {
    final boolean perWindow;

    Win(boolean p) {
      perWindow = p;
    }

    public void process(
        Tuple2<String, Long> key, Context c, Iterable<Long> all, Collector<String> out)
        throws Exception {
      long n = 0;
      for (Long x : all) n++;
      if (perWindow)
        c.windowState().getState(new ValueStateDescriptor<>("per-window", Types.LONG)).update(n);
      c.globalState().getState(new ValueStateDescriptor<>("per-key", Types.LONG)).update(n);
      out.collect(key.f0 + n);
    }
  }

  public static class Two extends KeyedCoProcessFunction<Long, Long, Long, Long> {
    transient ValueState<String> left;
    transient MapState<Long, P> right;

    void start() {
      if (left == null) {
        left = getRuntimeContext().getState(new ValueStateDescriptor<>("left", Types.STRING));
        right =
            getRuntimeContext().getMapState(new MapStateDescriptor<>("right", Types.LONG, pojo()));
      }
    }

    public void processElement1(Long x, Context c, Collector<Long> out) throws Exception {
      start();
      steps.incrementAndGet();
      left.update("left" + x);
    }

    public void processElement2(Long x, Context c, Collector<Long> out) throws Exception {
      start();
      steps.incrementAndGet();
      right.put(x, new P((int) (long) x, false));
      c.timerService().registerProcessingTimeTimer(4_000_000_000_000L);
    }
  }

  static final MapStateDescriptor<String, Long> RULES =
      new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);

  public static class Ruled extends KeyedBroadcastProcessFunction<Long, Long, Long, Long> {
    transient ValueState<Long> own;

    public void processElement(Long x, ReadOnlyContext c, Collector<Long> out) throws Exception {
      if (own == null)
        own = getRuntimeContext().getState(new ValueStateDescriptor<>("own", Types.LONG));
      steps.incrementAndGet();
      own.update(x);
    }

    public void processBroadcastElement(Long x, Context c, Collector<Long> out) throws Exception {
      steps.incrementAndGet();
      c.getBroadcastState(RULES).put("rule" + x % 5, x);
    }
  }

  static <K> void keyed(
      DataStream<Long> s, String uid, TypeInformation<K> type, KeySelector<Long, K> key) {
    s.keyBy(key, type).process(new AnyKey<K>()).uid(uid).name(uid).returns(Types.LONG).print();
  }

  @SuppressWarnings("unchecked")
  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Configuration c = new Configuration();
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    for (String k : new String[] {"state.checkpoints.dir", "execution.checkpointing.dir"})
      c.setString(k, "file://" + dir + "/ck");
    c.setString("execution.checkpointing.interval", "700ms");
    c.setString("restart-strategy", "none");
    c.setString("restart-strategy.type", "none");
    c.setString("state.checkpoints.num-retained", "3");
    c.setString("execution.checkpointing.num-retained", "3");
    c.setString(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    c.setString("state.checkpoint-storage", "filesystem");
    c.setString("execution.checkpointing.storage", "filesystem");
    c.setString("taskmanager.memory.network.min", "128mb");
    c.setString("taskmanager.memory.network.max", "128mb");
    c.setString("taskmanager.memory.managed.size", "200mb");
    int parallelism = 2, max = 16;
    boolean restored = false;
    for (int i = 2; i < a.length; i++) {
      String[] pair = a[i].split("=", 2);
      if (pair[0].equals("p")) parallelism = Integer.parseInt(pair[1]);
      else if (pair[0].equals("max")) max = Integer.parseInt(pair[1]);
      else if (pair[0].equals("limit")) LIMIT = Integer.parseInt(pair[1]);
      else {
        c.setString(pair[0], pair[1]);
        if (pair[0].endsWith(".path")) restored = true;
      }
    }
    StreamExecutionEnvironment e =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism, c);
    e.configure(c, TortureJob.class.getClassLoader());
    e.getCheckpointConfig().getClass();
    try { // 1.14: its option has no key of its own
      Class<?> mode =
          Class.forName(
              "org.apache.flink.streaming.api.environment.CheckpointConfig$ExternalizedCheckpointCleanup");
      CheckpointConfig.class
          .getMethod("enableExternalizedCheckpoints", mode)
          .invoke(e.getCheckpointConfig(), mode.getField("RETAIN_ON_CANCELLATION").get(null));
    } catch (ReflectiveOperationException ignored) {
    }
    e.setMaxParallelism(max);
    e.disableOperatorChaining();
    DataStream<Long> s =
        e.fromSequence(0, 99_999_999L)
            .uid("numbers")
            .map(new Slow())
            .uid("slow")
            .filter(new Limit())
            .uid("limit")
            .assignTimestampsAndWatermarks(
                WatermarkStrategy.<Long>noWatermarks().withTimestampAssigner((x, t) -> x * 100))
            .uid("times");
    s.keyBy(x -> name((int) (x % KEYS)), Types.STRING)
        .process(new Kinds())
        .uid("kinds")
        .name("kinds")
        .returns(Types.LONG)
        .print();
    keyed(
        s,
        "k-tuple",
        Types.TUPLE(Types.STRING, Types.LONG),
        x -> Tuple2.of(name((int) (x % KEYS)), x % KEYS));
    keyed(
        s,
        "k-nested",
        Types.TUPLE(Types.TUPLE(Types.INT, Types.STRING), Types.BOOLEAN),
        x -> Tuple2.of(Tuple2.of((int) (x % KEYS), "a"), x % 2 == 0));
    keyed(
        s,
        "k-row",
        Types.ROW(Types.STRING, Types.LONG, Types.DOUBLE),
        x -> Row.of(name((int) (x % KEYS)), x % KEYS, x % 2 == 0 ? null : 0.5));
    keyed(s, "k-pojo", TypeInformation.of(PK.class), x -> new PK((int) (x % KEYS)));
    keyed(s, "k-long", Types.LONG, x -> (x % KEYS - 5) * 10_000_000_007L);
    keyed(s, "k-int", Types.INT, x -> (int) (x % KEYS - 5));
    keyed(s, "k-short", Types.SHORT, x -> (short) (x % KEYS - 5));
    keyed(s, "k-byte", Types.BYTE, x -> (byte) (x % KEYS - 5));
    keyed(s, "k-bool", Types.BOOLEAN, x -> x % 2 == 0);
    keyed(s, "k-char", Types.CHAR, x -> (char) ('a' + x % KEYS * 3000));
    keyed(s, "k-double", Types.DOUBLE, x -> (x % KEYS - 5) / 3.0);
    keyed(s, "k-float", Types.FLOAT, x -> (x % KEYS - 5) / 3.0f);
    keyed(s, "k-bigint", Types.BIG_INT, x -> BigInteger.valueOf(x % KEYS - 5).pow(25));
    keyed(
        s,
        "k-bigdec",
        Types.BIG_DEC,
        x -> new BigDecimal(BigInteger.valueOf(x % KEYS - 5).pow(15), (int) (x % KEYS)));
    keyed(
        s,
        "k-instant",
        Types.INSTANT,
        x -> Instant.ofEpochSecond(x % KEYS * 100_000_000L - 5, x % KEYS));
    keyed(
        s, "k-localdate", Types.LOCAL_DATE, x -> LocalDate.of(2020, 1, 1).plusDays(x % KEYS * 40));
    keyed(s, "k-localtime", Types.LOCAL_TIME, x -> LocalTime.of((int) (x % KEYS), 1, 2, 3));
    keyed(
        s,
        "k-localdatetime",
        Types.LOCAL_DATE_TIME,
        x -> LocalDateTime.of(2020, 1, 1, 1, 1).plusHours(x % KEYS * 40));
    keyed(
        s,
        "k-sqltimestamp",
        Types.SQL_TIMESTAMP,
        x -> new java.sql.Timestamp(x % KEYS * 1_000_000_007L));
    keyed(s, "k-sqldate", Types.SQL_DATE, x -> new java.sql.Date(x % KEYS * 86_150_000L));
    keyed(
        s,
        "k-list",
        Types.LIST(Types.STRING),
        x -> new ArrayList<>(Arrays.asList("a", name((int) (x % KEYS)))));
    keyed(
        s,
        "k-either",
        new EitherTypeInfo<>(Types.LONG, Types.STRING),
        x -> x % 2 == 0 ? Either.Left(x % KEYS) : Either.Right(name((int) (x % KEYS))));
    keyed(s, "k-uuid", new GenericTypeInfo<>(UUID.class), x -> new UUID(x % KEYS, -(x % KEYS)));
    keyed(s, "k-longvalue", new ValueTypeInfo<>(LongValue.class), x -> new LongValue(x % KEYS));
    keyed(
        s,
        "k-stringvalue",
        new ValueTypeInfo<>(StringValue.class),
        x -> new StringValue("sv" + x % KEYS));
    KeyedStream<Long, String> byName = s.keyBy(x -> name((int) (x % KEYS)), Types.STRING);
    byName.transform("named", Types.LONG, new Named()).uid("named").print();
    KeyedStream<Long, Tuple2<String, Long>> byTuple =
        s.keyBy(
            x -> Tuple2.of(name((int) (x % KEYS)), x % KEYS),
            Types.TUPLE(Types.STRING, Types.LONG));
    byTuple
        .window(
            (WindowAssigner<Object, TimeWindow>)
                timed(EventTimeSessionWindows.class, "withGap", 1500L))
        .trigger(ContinuousOrCount.of(2))
        .process(new Win(false))
        .uid("w-session")
        .name("w-session")
        .returns(Types.STRING)
        .print();
    byTuple
        .window(
            (WindowAssigner<Object, TimeWindow>)
                timed(SlidingEventTimeWindows.class, "of", 4000L, 1000L))
        .reduce((ReduceFunction<Long>) Long::sum)
        .uid("w-sliding")
        .name("w-sliding")
        .print();
    byTuple
        .window(
            (WindowAssigner<Object, TimeWindow>)
                timed(SlidingEventTimeWindows.class, "of", 4000L, 2000L))
        .trigger(CountTrigger.of(2))
        .process(new Win(true))
        .uid("w-apply")
        .name("w-apply")
        .returns(Types.STRING)
        .print();
    byName
        .window(
            (WindowAssigner<Object, TimeWindow>) timed(TumblingEventTimeWindows.class, "of", 1000L))
        .aggregate(new Agg(), Types.TUPLE(Types.LONG, Types.STRING), Types.STRING)
        .uid("w-agg")
        .name("w-agg")
        .print();
    byName
        .window(
            (WindowAssigner<Object, TimeWindow>) timed(TumblingEventTimeWindows.class, "of", 2000L))
        .trigger(CountTrigger.of(2))
        .evictor(CountEvictor.of(3))
        .reduce((ReduceFunction<Long>) Long::sum)
        .uid("w-evict")
        .name("w-evict")
        .print();
    byName
        .countWindow(7)
        .reduce((ReduceFunction<Long>) Long::sum)
        .uid("w-count")
        .name("w-count")
        .print();
    byName
        .countWindow(4, 2)
        .reduce((ReduceFunction<Long>) Long::sum)
        .uid("w-countslide")
        .name("w-countslide")
        .print();
    s.countWindowAll(5).reduce((ReduceFunction<Long>) Long::sum).uid("w-all").name("w-all").print();
    s.keyBy(x -> x % KEYS, Types.LONG)
        .connect(s.keyBy(x -> x % 5, Types.LONG))
        .process(new Two())
        .uid("two")
        .name("two")
        .returns(Types.LONG)
        .print();
    s.keyBy(x -> x % KEYS, Types.LONG)
        .connect(s.broadcast(RULES))
        .process(new Ruled())
        .uid("ruled")
        .name("ruled")
        .returns(Types.LONG)
        .print();
    KeyedStream<Long, Long> byLong = s.keyBy(x -> x % KEYS, Types.LONG);
    try {
      Object joined = null;
      for (Method m : KeyedStream.IntervalJoin.class.getMethods())
        if (m.getName().equals("between")) {
          Class<?> p = m.getParameterTypes()[0];
          Object low =
              p == Duration.class
                  ? Duration.ofSeconds(-1)
                  : p.getMethod("milliseconds", long.class).invoke(null, -1000L);
          Object high =
              p == Duration.class
                  ? Duration.ofSeconds(1)
                  : p.getMethod("milliseconds", long.class).invoke(null, 1000L);
          joined = m.invoke(byLong.intervalJoin(byLong), low, high);
        }
      ((KeyedStream.IntervalJoined<Long, Long, Long>) joined)
          .process(
              new ProcessJoinFunction<Long, Long, Long>() {
                public void processElement(Long l, Long r, Context cc, Collector<Long> out) {
                  out.collect(l + r);
                }
              })
          .uid("interval")
          .name("interval")
          .print();
    } catch (ReflectiveOperationException x) {
      throw new RuntimeException(x);
    }
    byLong.reduce((ReduceFunction<Long>) Long::sum).uid("reduced").name("reduced").print();
    e.fromSequence(0, 9)
        .uid("bounded")
        .filter(x -> x >= 0)
        .uid("bounded-filter")
        .keyBy(x -> x, Types.LONG)
        .process(new AnyKey<Long>())
        .uid("bounded-keep")
        .name("bounded-keep")
        .returns(Types.LONG)
        .print();
    JobClient j = e.executeAsync("torture");
    long last = -1, since = System.currentTimeMillis(), begin = since;
    while (System.currentTimeMillis() - since < 4000 || (last == 0 && !restored)) {
      long now = steps.get();
      if (now != last) {
        last = now;
        since = System.currentTimeMillis();
      }
      Thread.sleep(50);
      if (System.currentTimeMillis() - begin > 150_000) {
        System.out.println("STUCK " + steps);
        System.exit(1);
      }
      try {
        if (j.getJobStatus().get().isTerminalState()) {
          System.out.println("ENDED");
          j.getJobExecutionResult().get();
          System.exit(1);
        }
      } catch (java.util.concurrent.ExecutionException x) {
        x.printStackTrace(System.out);
        System.exit(1);
      }
    }
    System.out.println("STEPS " + steps);
    for (String format : a[1].split(",")) {
      if (format.equals("none")) continue;
      Method plain = null, typed = null;
      for (Method m : JobClient.class.getMethods())
        if (m.getName().equals("triggerSavepoint")) {
          if (m.getParameterCount() == 1) plain = m;
          else typed = m;
        }
      try {
        Object f;
        if (typed == null) f = plain.invoke(j, "file://" + dir + "/sp-" + format);
        else
          f =
              typed.invoke(
                  j,
                  "file://" + dir + "/sp-" + format,
                  Enum.valueOf((Class<Enum>) typed.getParameterTypes()[1], format));
        System.out.println(
            "SAVEPOINT " + format + " " + ((java.util.concurrent.CompletableFuture<?>) f).get());
      } catch (Exception x) {
        System.out.println("NO SAVEPOINT " + format + " " + x);
        x.printStackTrace(System.out);
        try {
          j.getJobExecutionResult().get(10, java.util.concurrent.TimeUnit.SECONDS);
        } catch (Exception y) {
          y.printStackTrace(System.out);
        }
      }
    }
    Thread.sleep(1500);
    j.cancel().get();
    Thread.sleep(500);
    System.exit(0);
  }

  /** Fires by count, can merge, and keeps a count of windows. */
  public static class ContinuousOrCount extends Trigger<Object, TimeWindow> {
    static ContinuousOrCount of(long n) {
      return new ContinuousOrCount();
    }

    final ReducingStateDescriptor<Long> count =
        new ReducingStateDescriptor<>("count", new Sum(), LongSerializer.INSTANCE);

    public TriggerResult onElement(Object x, long t, TimeWindow w, TriggerContext c)
        throws Exception {
      c.registerEventTimeTimer(w.maxTimestamp());
      c.getPartitionedState(count).add(1L);
      steps.incrementAndGet();
      return TriggerResult.FIRE;
    }

    public TriggerResult onProcessingTime(long t, TimeWindow w, TriggerContext c) {
      return TriggerResult.CONTINUE;
    }

    public TriggerResult onEventTime(long t, TimeWindow w, TriggerContext c) {
      return TriggerResult.FIRE;
    }

    public boolean canMerge() {
      return true;
    }

    public void onMerge(TimeWindow w, OnMergeContext c) throws Exception {
      c.mergePartitionedState(count);
      c.registerEventTimeTimer(w.maxTimestamp());
    }

    public void clear(TimeWindow w, TriggerContext c) throws Exception {
      c.getPartitionedState(count).clear();
      c.deleteEventTimeTimer(w.maxTimestamp());
    }
  }

  public static class Sum implements ReduceFunction<Long> {
    public Long reduce(Long a, Long b) {
      return a + b;
    }
  }
}
