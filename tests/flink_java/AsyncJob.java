import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.*;
import org.apache.flink.api.common.eventtime.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.v2.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.*;
import org.apache.flink.streaming.api.windowing.assigners.*;
import org.apache.flink.util.Collector;

/**
 * Makes the checkpoint of ForSt in tests/data/flink/versions.tar.xz: state of the asynchronous API of Flink 2.x, which
 * stays as it is once LIMIT numbers went through. Needs Flink 2.2 with ForSt (flink-dist), and TortureJob.
 *
 * <p>Arguments: an empty directory; formats of savepoints, with commas, or none; then options of Flink as key=value.
 */
public class AsyncJob {
  static final AtomicLong steps = new AtomicLong();
  static final int LIMIT = 48, KEYS = 12;

  public static class Slow implements MapFunction<Long, Long> {
    public Long map(Long x) throws Exception {
      Thread.sleep(x < LIMIT ? 10 : 3);
      return x;
    }
  }

  public static class Limit implements FilterFunction<Long> {
    public boolean filter(Long x) {
      if (x < LIMIT) steps.incrementAndGet();
      return x < LIMIT;
    }
  }

  public static class Keep extends KeyedProcessFunction<String, Long, Long> {
    transient ValueState<Integer> v;
    transient ListState<String> l;
    transient MapState<String, Long> m;
    transient ReducingState<Long> r;
    transient AggregatingState<Long, String> g;
    transient ValueState<String> tv;
    transient MapState<String, Long> tm;
    transient ListState<Tuple2<Long, String>> tl;
    transient MapState<Long, String> nulls;

    public void open(OpenContext c) {
      StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofDays(1)).build();
      RuntimeContext x = getRuntimeContext();
      v = x.getState(new ValueStateDescriptor<>("v", Types.INT));
      l = x.getListState(new ListStateDescriptor<>("l", Types.STRING));
      m = x.getMapState(new MapStateDescriptor<>("m", Types.STRING, Types.LONG));
      nulls = x.getMapState(new MapStateDescriptor<>("nulls", Types.LONG, Types.STRING));
      r = x.getReducingState(new ReducingStateDescriptor<>("r", Long::sum, Types.LONG));
      g =
          x.getAggregatingState(
              new AggregatingStateDescriptor<>(
                  "g", new TortureJob.Agg(), Types.TUPLE(Types.LONG, Types.STRING)));
      ValueStateDescriptor<String> d = new ValueStateDescriptor<>("tv", Types.STRING);
      d.enableTimeToLive(ttl);
      tv = x.getState(d);
      MapStateDescriptor<String, Long> e = new MapStateDescriptor<>("tm", Types.STRING, Types.LONG);
      e.enableTimeToLive(ttl);
      tm = x.getMapState(e);
      ListStateDescriptor<Tuple2<Long, String>> f =
          new ListStateDescriptor<>("tl", Types.TUPLE(Types.LONG, Types.STRING));
      f.enableTimeToLive(ttl);
      tl = x.getListState(f);
    }

    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      steps.incrementAndGet();
      long k = x % KEYS;
      v.asyncValue()
          .thenAccept(
              old -> {
                v.asyncUpdate(old == null ? 1 : old + 1);
              });
      l.asyncAdd("l," + x);
      m.asyncPut("m" + x % 3, x);
      nulls.asyncPut(x % 2, x % 2 == 0 ? null : "n");
      r.asyncAdd(k);
      g.asyncAdd(k);
      tv.asyncUpdate("tv" + k);
      tm.asyncPut("t" + x % 2, k);
      tl.asyncAdd(Tuple2.of(x, "tl"));
      if (x / KEYS == 1) m.asyncRemove("m0");
      c.timerService().registerEventTimeTimer(1_000_000L + x);
    }
  }

  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Configuration c = new Configuration();
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    c.setString("execution.checkpointing.dir", "file://" + dir + "/ck");
    c.setString("execution.checkpointing.interval", "700ms");
    c.setString("restart-strategy.type", "none");
    c.setString("execution.checkpointing.num-retained", "3");
    c.setString(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    c.setString("execution.checkpointing.storage", "filesystem");
    c.setString("taskmanager.memory.network.min", "64mb");
    c.setString("taskmanager.memory.network.max", "64mb");
    c.setString("taskmanager.memory.managed.size", "200mb");
    for (int i = 2; i < a.length; i++) {
      String[] p = a[i].split("=", 2);
      c.setString(p[0], p[1]);
    }
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    e.configure(c);
    e.setMaxParallelism(16);
    DataStream<Long> s =
        e.fromSequence(0, 99_999_999L)
            .uid("numbers")
            .map(new Slow())
            .filter(new Limit())
            .assignTimestampsAndWatermarks(
                WatermarkStrategy.<Long>noWatermarks().withTimestampAssigner((x, t) -> x * 100));
    KeyedStream<Long, String> k =
        s.keyBy(x -> TortureJob.name((int) (x % KEYS)), Types.STRING).enableAsyncState();
    k.process(new Keep()).uid("keep").name("keep").returns(Types.LONG).print();
    KeyedStream<Long, Long> q = s.keyBy(x -> x % KEYS, Types.LONG).enableAsyncState();
    q.reduce((ReduceFunction<Long>) Long::sum).uid("reduced").name("reduced").print();
    q.window(SlidingEventTimeWindows.of(Duration.ofSeconds(4), Duration.ofSeconds(1)))
        .reduce((ReduceFunction<Long>) Long::sum)
        .uid("w-sliding")
        .name("w-sliding")
        .print();
    JobClient j = e.executeAsync("async");
    long last = -1, since = System.currentTimeMillis(), begin = since;
    while (System.currentTimeMillis() - since < 4000 || last == 0) {
      if (steps.get() != last) {
        last = steps.get();
        since = System.currentTimeMillis();
      }
      Thread.sleep(50);
      if (System.currentTimeMillis() - begin > 120_000) System.exit(1);
      if (j.getJobStatus().get().isTerminalState()) {
        try {
          j.getJobExecutionResult().get();
        } catch (Exception x) {
          x.printStackTrace(System.out);
        }
        System.exit(1);
      }
    }
    for (String f : a[1].split(","))
      try {
        System.out.println(
            "SAVEPOINT "
                + j.triggerSavepoint("file://" + dir + "/sp-" + f, SavepointFormatType.valueOf(f))
                    .get());
      } catch (Exception x) {
        x.printStackTrace(System.out);
      }
    Thread.sleep(1500);
    j.cancel().get();
    Thread.sleep(500);
    System.exit(0);
  }
}
