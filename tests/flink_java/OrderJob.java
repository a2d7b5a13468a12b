import java.util.*;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job that is compiled with Flink 1 and with Flink 2. It keeps a `shop.Order` a key, a Pojo that is declared elsewhere,
 * says `TOUCHED` once it has had each, takes a savepoint and ends.
 *
 * <p>Arguments: a folder for savepoints, then options of Flink as key=value.
 */
public class OrderJob {
  static final int KEYS = 4;
  static final Set<Long> done = Collections.synchronizedSet(new HashSet<>());

  static class Keep extends KeyedProcessFunction<Long, Long, Long> {
    transient ValueState<shop.Order> order;
    transient ValueState<Long> count;

    @Override
    public void open(OpenContext c) {
      order = getRuntimeContext().getState(new ValueStateDescriptor<>("order", shop.Order.class));
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      count.update(count.value() == null ? 1 : count.value() + 1);
      shop.Order one = order.value();
      order.update(one == null ? new shop.Order() : one);
      done.add(x % KEYS);
    }
  }

  static class Slow implements MapFunction<Long, Long> {
    @Override
    public Long map(Long x) throws Exception {
      Thread.sleep(20);
      return x;
    }
  }

  public static void main(String[] a) throws Exception {
    Configuration c = new Configuration();
    for (int i = 1; i < a.length; i++) {
      String[] kv = a[i].split("=", 2);
      c.setString(kv[0], kv[1]);
    }
    c.setString("restart-strategy.type", "none");
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(1, c);
    e.fromSequence(0, 99_999_999L).uid("numbers").map(new Slow()).returns(Types.LONG)
        .keyBy(x -> x % KEYS, Types.LONG)
        .process(new Keep())
        .uid("keep")
        .returns(Types.LONG)
        .print();
    JobClient j = e.executeAsync("orders");
    while (done.size() < KEYS) {
      if (j.getJobStatus().get().isGloballyTerminalState()) {
        System.out.println("ENDED " + j.getJobStatus().get());
        System.exit(3);
      }
      Thread.sleep(50);
    }
    System.out.println("TOUCHED " + KEYS);
    System.out.println("SAVEPOINT " + j.triggerSavepoint("file://" + a[0], SavepointFormatType.CANONICAL).get());
    j.cancel().get();
    System.exit(0);
  }
}
