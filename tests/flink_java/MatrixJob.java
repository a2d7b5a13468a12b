import java.io.Serializable;
import java.math.BigDecimal;
import java.time.*;
import java.util.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Makes the snapshots in tests/data/flink/matrix.tar.xz. What each key must hold follows from its number
 * (tests/flink/test_matrix.py). Compiles and runs with Flink 1.20.5, 2.0.2 and 2.3.0 (flink-streaming-java,
 * flink-clients, flink-statebackend-rocksdb, flink-statebackend-changelog and flink-dstl-dfs on the class path). The
 * archive holds what each run left, by version and case; the folder that the runs wrote to is called /mnt/ckpt/data.
 *
 * <p>Arguments: an empty directory, CANONICAL, NATIVE or none (a savepoint at the end), then options of Flink as
 * key=value.
 */
public class MatrixJob {
  static final int KEYS = 20;
  static final Set<String> done = Collections.synchronizedSet(new HashSet<>());

  static class Slow implements MapFunction<Long, Long> {
    int seen;

    @Override
    public Long map(Long x) throws Exception {
      Thread.sleep(++seen <= KEYS ? 40 : 5);
      return x;
    }
  }

  static class Keep extends KeyedProcessFunction<String, Long, Long> {
    transient ValueState<Integer> rounds;
    transient ValueState<String> text;
    transient ListState<String> list;
    transient MapState<String, Long> map;
    transient ReducingState<Long> sum;
    transient ValueState<UUID> uuid;
    transient ValueState<LocalDateTime> when;
    transient ValueState<Object> any;
    transient ListState<BigDecimal> prices;

    static <T> GenericTypeInfo<T> kryo(Class<T> type) {
      return new GenericTypeInfo<>(type);
    }

    // of 1.20 and of 2.x: whichever the class at hand has is called
    public void open(Configuration c) {
      start();
    }

    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      start();
    }

    void start() {
      RuntimeContext r = getRuntimeContext();
      rounds = r.getState(new ValueStateDescriptor<>("rounds", Types.INT));
      text = r.getState(new ValueStateDescriptor<>("text", Types.STRING));
      list = r.getListState(new ListStateDescriptor<>("list", Types.STRING));
      map = r.getMapState(new MapStateDescriptor<>("map", Types.STRING, Types.LONG));
      sum = r.getReducingState(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
      uuid = r.getState(new ValueStateDescriptor<>("uuid", kryo(UUID.class)));
      when = r.getState(new ValueStateDescriptor<>("when", kryo(LocalDateTime.class)));
      any = r.getState(new ValueStateDescriptor<>("any", kryo(Object.class)));
      prices = r.getListState(new ListStateDescriptor<>("prices", kryo(BigDecimal.class)));
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      long k = x % KEYS;
      int round = rounds.value() == null ? 0 : rounds.value();
      if (round == 2) { // of a job that was restored, too
        done.add(c.getCurrentKey());
        return;
      }
      rounds.update(round + 1);
      if (round == 0) {
        text.update("first");
        list.add("a" + k);
        map.put("x", k);
        map.put("y", k);
        map.put("z", 1L);
        sum.add(1L);
        any.update(new ArrayList<>(Arrays.asList("a", 1, k)));
        prices.add(new BigDecimal(k + ".50"));
        c.timerService().registerEventTimeTimer(7000 + k);
        c.timerService().registerEventTimeTimer(8000 + k);
      } else {
        text.update("text " + k);
        list.addAll(Arrays.asList("b,", ""));
        map.remove("z");
        map.putAll(Collections.singletonMap("y", -k));
        sum.add(k);
        uuid.update(new UUID(k, -k));
        when.update(LocalDateTime.of(2024, 2, 29, 1, 2, 3).plusNanos(k));
        if (k % 3 == 0) {
          any.update(new HashMap<>(Collections.singletonMap("k", Optional.of(Duration.ofSeconds(k)))));
        } else if (k % 3 == 1) {
          any.clear();
        }
        prices.add(BigDecimal.ONE);
        c.timerService().deleteEventTimeTimer(8000 + k);
        done.add(c.getCurrentKey());
      }
    }
  }

  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Configuration c = Local.options(a, 2);
    Local.keepCheckpoints(c, dir + "/ck", "300ms", 1);
    c.setString("execution.checkpointing.storage", "filesystem");
    c.setString("execution.checkpointing.data-inline-threshold", "200b");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    e.setMaxParallelism(8);
    SingleOutputStreamOperator<Long> s =
        e.fromSequence(0, 99_999_999L).uid("numbers").map(new Slow()).returns(Types.LONG);
    s.keyBy(x -> "key-" + (x % KEYS), Types.STRING)
        .process(new Keep())
        .uid("keep")
        .returns(Types.LONG)
        .print();
    JobClient j = e.executeAsync("matrix");
    while (done.size() < KEYS) {
      Thread.sleep(50);
    }
    Thread.sleep(1500);
    Local.end(j, dir + "/sp", a[1]);
  }
}
