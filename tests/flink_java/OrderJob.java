import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job that is compiled with Flink 1 and with Flink 2. It keeps a `shop.Order` a key, a Pojo that is declared elsewhere,
 * says `TOUCHED` once it has had each, takes a savepoint and ends.
 *
 * <p>Arguments: a folder for savepoints, then options of Flink as key=value.
 */
public class OrderJob {
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
      Touch.done.add(x % Touch.KEYS);
    }
  }

  public static void main(String[] a) throws Exception {
    Touch.run(a, 1, x -> x % Touch.KEYS, Types.LONG, new Keep());
  }
}
