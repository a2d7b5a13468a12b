import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.*;
import java.util.*;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.java.typeutils.*;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.*;
import org.apache.flink.streaming.api.functions.async.*;
import org.apache.flink.streaming.api.functions.co.*;
import org.apache.flink.streaming.api.functions.windowing.*;
import org.apache.flink.streaming.api.windowing.assigners.*;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.*;
import org.apache.flink.streaming.api.windowing.windows.*;
import org.apache.flink.types.*;
import org.apache.flink.util.Collector;

/**
 * State of every serializer that Flink brings for the DataStream API, and of its operators: windows
 * of all kinds, joins, patterns, asynchronous calls, broadcast, lists. A job that is restored
 * touches none of it, so that its savepoint has the rows of the snapshot that it began from.
 * Compiles with Flink 1.20 and 2.x; tests/data/flink/releases.tar.xz has the savepoints of 1.14.6
 * to 2.3.0 (before 1.20 with `Time` in place of `Duration`, before 1.19 without the second `open`).
 *
 * <p>Arguments: an empty directory, CANONICAL, NATIVE or none (a savepoint at the end), then
 * options of Flink as key=value.
 */
public class UpgradeJob {
  static final int KEYS = 6;
  static final int LAST = 2 * KEYS;
  static final Set<Long> done = Collections.synchronizedSet(new HashSet<>());

  public enum Color {
    RED,
    GREEN,
    BLUE
  }

  public static class Base {
    public long id;
    public String name;
    public Color color;
    public Integer boxed;
    public int[] numbers;
    public String[] words;
    public Tuple2<String, Long> pair;
    public Inner inner;
    public BigDecimal price;
    public Instant at;
    public java.util.Date date;

    public Base() {}

    public Base(long k) {
      id = k;
      name = k % 2 == 0 ? null : "n" + k;
      color = Color.values()[(int) (k % 3)];
      boxed = k % 3 == 0 ? null : (int) -k;
      numbers = new int[] {1, (int) k};
      words = new String[] {"a", "w" + k};
      pair = Tuple2.of("p" + k, k);
      inner = k % 2 == 0 ? new Inner(k) : null;
      price = new BigDecimal(k + ".25");
      at = Instant.ofEpochSecond(k, 5);
      date = new java.util.Date(k * 1000);
    }
  }

  public static class Inner {
    public double x;
    public boolean yes;

    public Inner() {}

    public Inner(long k) {
      x = k / 3.0;
      yes = k % 2 == 0;
    }
  }

  static class Case<T> implements java.io.Serializable {
    final String name;
    final TypeInformation<T> type;
    final Fun<T> value;

    Case(String name, TypeInformation<T> type, Fun<T> value) {
      this.name = name;
      this.type = type;
      this.value = value;
    }
  }

  interface Fun<T> extends java.io.Serializable {
    T of(long k);
  }

  static List<Case<?>> cases() {
    List<Case<?>> c = new ArrayList<>();
    c.add(new Case<>("string", Types.STRING, k -> "caf\u00e9 " + k));
    c.add(new Case<>("boolean", Types.BOOLEAN, k -> k % 2 == 0));
    c.add(new Case<>("byte", Types.BYTE, k -> (byte) -k));
    c.add(new Case<>("short", Types.SHORT, k -> (short) -k));
    c.add(new Case<>("int", Types.INT, k -> (int) -k));
    c.add(new Case<>("float", Types.FLOAT, k -> k / 3f));
    c.add(new Case<>("double", Types.DOUBLE, k -> k / 3.0));
    c.add(new Case<>("char", Types.CHAR, k -> (char) ('a' + k)));
    c.add(new Case<>("bigdec", Types.BIG_DEC, k -> new BigDecimal(k + ".5")));
    c.add(new Case<>("bigint", Types.BIG_INT, k -> BigInteger.valueOf(k).shiftLeft(70)));
    c.add(new Case<>("sqldate", Types.SQL_DATE, k -> new java.sql.Date(k * 86400000L)));
    c.add(new Case<>("sqltime", Types.SQL_TIME, k -> new java.sql.Time(k * 1000)));
    c.add(new Case<>("sqltimestamp", Types.SQL_TIMESTAMP, k -> new java.sql.Timestamp(k * 1001)));
    c.add(new Case<>("localdate", Types.LOCAL_DATE, k -> LocalDate.of(2024, 2, (int) (1 + k))));
    c.add(new Case<>("localtime", Types.LOCAL_TIME, k -> LocalTime.of(1, 2, (int) k)));
    c.add(
        new Case<>(
            "localdatetime",
            Types.LOCAL_DATE_TIME,
            k -> LocalDateTime.of(2024, 2, 3, 4, 5, (int) k, 7)));
    c.add(new Case<>("instant", Types.INSTANT, k -> Instant.ofEpochSecond(k, 9)));
    c.add(new Case<>("date", BasicTypeInfo.DATE_TYPE_INFO, k -> new java.util.Date(k)));
    c.add(
        new Case<>(
            "tuple",
            Types.TUPLE(Types.STRING, Types.LONG, Types.BOOLEAN),
            k -> Tuple3.of("t", k, true)));
    c.add(new Case<>("tuple0", new TupleTypeInfo<Tuple0>(Tuple0.class), k -> Tuple0.INSTANCE));
    c.add(
        new Case<>(
            "row", Types.ROW(Types.STRING, Types.LONG), k -> Row.of(k % 2 == 0 ? null : "r", k)));
    c.add(
        new Case<>(
            "named",
            Types.ROW_NAMED(new String[] {"a", "b"}, Types.STRING, Types.LONG),
            k -> Row.of("r", k)));
    c.add(new Case<>("pojo", Types.POJO(Base.class), k -> new Base(k)));
    c.add(new Case<>("enum", Types.ENUM(Color.class), k -> Color.values()[(int) (k % 3)]));
    c.add(
        new Case<>(
            "either",
            Types.EITHER(Types.STRING, Types.LONG),
            k -> k % 2 == 0 ? Either.Left("l" + k) : Either.Right(k)));
    c.add(new Case<>("list", Types.LIST(Types.STRING), k -> Arrays.asList("a", "b" + k)));
    c.add(
        new Case<>(
            "map",
            Types.MAP(Types.STRING, Types.LONG),
            k -> new HashMap<>(Collections.singletonMap("m", k))));
    c.add(
        new Case<>(
            "ints",
            PrimitiveArrayTypeInfo.INT_PRIMITIVE_ARRAY_TYPE_INFO,
            k -> new int[] {1, (int) k}));
    c.add(
        new Case<>(
            "bytes",
            PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO,
            k -> new byte[] {1, (byte) k}));
    c.add(
        new Case<>(
            "strings",
            BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO,
            k -> new String[] {"x", null, "y" + k}));
    c.add(new Case<>("longs", BasicArrayTypeInfo.LONG_ARRAY_TYPE_INFO, k -> new Long[] {1L, k}));
    c.add(
        new Case<>(
            "objects",
            ObjectArrayTypeInfo.getInfoFor(Types.TUPLE(Types.STRING, Types.LONG)),
            k -> new Tuple2[] {Tuple2.of("o", k)}));
    c.add(new Case<>("intvalue", new ValueTypeInfo<>(IntValue.class), k -> new IntValue((int) k)));
    c.add(
        new Case<>(
            "stringvalue", new ValueTypeInfo<>(StringValue.class), k -> new StringValue("v" + k)));
    return c;
  }

  static class Keep extends KeyedProcessFunction<Tuple2<String, Long>, Long, Long> {
    transient Map<Case<?>, ValueState<Object>> states;
    transient ValueState<Integer> rounds;
    transient ValueState<String> ttl;
    transient ListState<Long> ttlList;
    transient MapState<Integer, String> ttlMap;
    transient MapState<Tuple2<String, Integer>, Base> map;
    transient ListState<Row> list;
    transient AggregatingState<Long, Long> agg;

    // of 1.20 and of 2.x: whichever the class at hand has is called
    public void open(Configuration c) {
      start();
    }

    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      start();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    void start() {
      RuntimeContext r = getRuntimeContext();
      rounds = r.getState(new ValueStateDescriptor<>("rounds", Types.INT));
      states = new LinkedHashMap<>();
      for (Case one : cases()) {
        states.put(one, r.getState(new ValueStateDescriptor<Object>("v-" + one.name, one.type)));
      }
      StateTtlConfig t = StateTtlConfig.newBuilder(Duration.ofDays(10000)).build();
      ValueStateDescriptor<String> a = new ValueStateDescriptor<>("ttl", Types.STRING);
      ListStateDescriptor<Long> b = new ListStateDescriptor<>("ttl-list", Types.LONG);
      MapStateDescriptor<Integer, String> m =
          new MapStateDescriptor<>("ttl-map", Types.INT, Types.STRING);
      a.enableTimeToLive(t);
      b.enableTimeToLive(t);
      m.enableTimeToLive(t);
      ttl = r.getState(a);
      ttlList = r.getListState(b);
      ttlMap = r.getMapState(m);
      map =
          r.getMapState(
              new MapStateDescriptor<>(
                  "map", Types.TUPLE(Types.STRING, Types.INT), Types.POJO(Base.class)));
      list = r.getListState(new ListStateDescriptor<>("list", Types.ROW(Types.STRING, Types.LONG)));
      agg =
          r.getAggregatingState(
              new AggregatingStateDescriptor<>(
                  "agg", new Sum(), Types.TUPLE(Types.LONG, Types.LONG)));
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      long k = c.getCurrentKey().f1;
      int round = rounds.value() == null ? 0 : rounds.value();
      if (x >= LAST) { // of a job that was restored: nothing changes
        done.add(k);
        return;
      }
      rounds.update(round + 1);
      for (Map.Entry<Case<?>, ValueState<Object>> one : states.entrySet()) {
        one.getValue().update(one.getKey().value.of(k));
      }
      ttl.update("t" + k);
      ttlList.add(k);
      ttlMap.put((int) k, "m" + k);
      map.put(Tuple2.of("x", (int) k), new Base(k));
      map.put(Tuple2.of("null", round), null);
      list.add(Row.of(null, k));
      list.add(Row.of("r", (long) round));
      agg.add(k);
      c.timerService().registerEventTimeTimer(7000 + k);
      c.timerService().registerProcessingTimeTimer(4102444800000L + k);
    }
  }

  static class Sum implements AggregateFunction<Long, Tuple2<Long, Long>, Long> {
    public Tuple2<Long, Long> createAccumulator() {
      return Tuple2.of(0L, 0L);
    }

    public Tuple2<Long, Long> add(Long x, Tuple2<Long, Long> a) {
      return Tuple2.of(a.f0 + x, a.f1 + 1);
    }

    public Long getResult(Tuple2<Long, Long> a) {
      return a.f0;
    }

    public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
      return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
    }
  }

  static class Slow implements MapFunction<Long, Long> {
    int seen;

    public Long map(Long x) throws Exception {
      Thread.sleep(++seen <= LAST + KEYS ? 100 : 20);
      return x;
    }
  }

  static class Held implements MapFunction<Long, Long>, CheckpointedFunction {
    transient ListState<String> list;
    transient ListState<Tuple2<String, Long>> union;
    transient BroadcastState<String, Row> cast;

    public Long map(Long x) {
      return x;
    }

    public void snapshotState(FunctionSnapshotContext c) throws Exception {
      list.update(Arrays.asList("one", "two"));
      union.update(Arrays.asList(Tuple2.of("u", 1L)));
      cast.put("k", Row.of("v", 1L));
    }

    public void initializeState(FunctionInitializationContext c) throws Exception {
      list =
          c.getOperatorStateStore().getListState(new ListStateDescriptor<>("list", Types.STRING));
      union =
          c.getOperatorStateStore()
              .getUnionListState(
                  new ListStateDescriptor<>("union", Types.TUPLE(Types.STRING, Types.LONG)));
      cast =
          c.getOperatorStateStore()
              .getBroadcastState(
                  new MapStateDescriptor<>(
                      "cast", Types.STRING, Types.ROW(Types.STRING, Types.LONG)));
    }
  }

  static class All extends ProcessWindowFunction<Long, String, Long, TimeWindow> {
    public void process(Long k, Context c, Iterable<Long> in, Collector<String> out)
        throws Exception {}
  }

  static class Never implements AsyncFunction<Long, Long> {
    public void asyncInvoke(Long x, ResultFuture<Long> r) {}

    public void timeout(Long x, ResultFuture<Long> r) {}
  }

  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Configuration c = Local.options(a, 2);
    Local.keepCheckpoints(c, dir + "/ck", "500ms", 1);
    if (!c.toMap().containsKey("pipeline.max-parallelism")) {
      c.setString("pipeline.max-parallelism", "16");
    }
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    SingleOutputStreamOperator<Long> s =
        e.fromSequence(0, 99_999_999L)
            .uid("numbers")
            .setParallelism(1)
            .map(new Slow())
            .returns(Types.LONG)
            .setParallelism(1)
            .uid("slow");
    s.keyBy(x -> Tuple2.of("key", x % KEYS), Types.TUPLE(Types.STRING, Types.LONG))
        .process(new Keep())
        .uid("keep")
        .returns(Types.LONG)
        .print();
    DataStream<Long> few =
        s.filter(x -> x < LAST)
            .returns(Types.LONG)
            .setParallelism(1)
            .uid("few")
            .assignTimestampsAndWatermarks(
                WatermarkStrategy.<Long>noWatermarks().withTimestampAssigner((x, t) -> x * 1000))
            .setParallelism(1)
            .uid("times");
    few.map(new Held()).uid("held").returns(Types.LONG).print();
    KeyedStream<Long, Long> keyed = few.keyBy(x -> x % 3, Types.LONG);
    keyed
        .window(TumblingEventTimeWindows.of(Duration.ofSeconds(5)))
        .reduce(Long::sum)
        .uid("reduce")
        .print();
    keyed
        .window(EventTimeSessionWindows.withGap(Duration.ofSeconds(4)))
        .aggregate(new Sum(), Types.TUPLE(Types.LONG, Types.LONG), Types.LONG)
        .uid("session")
        .print();
    keyed
        .window(SlidingEventTimeWindows.of(Duration.ofSeconds(6), Duration.ofSeconds(3)))
        .process(new All(), Types.STRING)
        .uid("process")
        .print();
    keyed
        .window(TumblingEventTimeWindows.of(Duration.ofSeconds(5)))
        .trigger(ContinuousEventTimeTrigger.of(Duration.ofSeconds(1)))
        .evictor(CountEvictor.of(3))
        .process(new All(), Types.STRING)
        .uid("evicted")
        .print();
    keyed.countWindow(100).reduce(Long::sum).uid("count").print();
    few.coGroup(few)
        .where(x -> x % 3, Types.LONG)
        .equalTo(x -> x % 3, Types.LONG)
        .window(TumblingEventTimeWindows.of(Duration.ofSeconds(5)))
        .apply(
            new CoGroupFunction<Long, Long, String>() {
              public void coGroup(Iterable<Long> l, Iterable<Long> r, Collector<String> o) {}
            },
            Types.STRING)
        .print();
    keyed
        .intervalJoin(few.keyBy(x -> x % 3, Types.LONG))
        .between(Duration.ofSeconds(-1), Duration.ofSeconds(1))
        .process(
            new ProcessJoinFunction<Long, Long, String>() {
              public void processElement(Long l, Long r, Context x, Collector<String> o) {}
            },
            Types.STRING)
        .uid("interval")
        .print();
    CEP.pattern(
            keyed,
            Pattern.<Long>begin("a")
                .where(
                    new SimpleCondition<Long>() {
                      public boolean filter(Long x) {
                        return x % 2 == 0;
                      }
                    })
                .followedByAny("b")
                .where(
                    new SimpleCondition<Long>() {
                      public boolean filter(Long x) {
                        return x > 1000;
                      }
                    })
                .within(Duration.ofSeconds(60)))
        .process(
            new PatternProcessFunction<Long, String>() {
              public void processMatch(Map<String, List<Long>> m, Context x, Collector<String> o) {}
            },
            Types.STRING)
        .uid("cep")
        .print();
    AsyncDataStream.unorderedWait(few, new Never(), 1, java.util.concurrent.TimeUnit.DAYS, 100)
        .returns(Types.LONG)
        .uid("async")
        .print();
    JobClient j = e.executeAsync("upgrade");
    while (done.size() < KEYS) {
      if (j.getJobStatus().get().isGloballyTerminalState()) {
        System.out.println("ENDED switched from state FAILING to FAILED " + j.getJobStatus().get());
        System.exit(3);
      }
      Thread.sleep(50);
    }
    Thread.sleep(1500);
    Local.end(j, dir + "/sp", a[1]);
  }
}
