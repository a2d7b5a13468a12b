import java.time.Duration;
import java.util.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job with one state of a kind, with a TTL or without. It touches the state of each key, takes a savepoint and ends.
 *
 * <p>Arguments: a folder for savepoints, `value`, `list` or `map`, `ttl` or `plain`, then options of Flink as key=value.
 */
public class TtlJob {
  static class Keep extends KeyedProcessFunction<Long, Long, Long> {
    final String kind;
    final boolean ttl;
    transient ValueState<Long> value;
    transient ListState<Long> list;
    transient MapState<Long, Long> map;

    Keep(String kind, boolean ttl) {
      this.kind = kind;
      this.ttl = ttl;
    }

    <D extends StateDescriptor<?, ?>> D with(D descriptor) {
      if (ttl) {
        descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(1)).build());
      }
      return descriptor;
    }

    void touch(Long x) throws Exception {
      if (value == null && list == null && map == null) {
        if (kind.equals("value")) {
          value = getRuntimeContext().getState(with(new ValueStateDescriptor<>("kept", Types.LONG)));
        } else if (kind.equals("list")) {
          list = getRuntimeContext().getListState(with(new ListStateDescriptor<>("kept", Types.LONG)));
        } else {
          map = getRuntimeContext().getMapState(with(new MapStateDescriptor<>("kept", Types.LONG, Types.LONG)));
        }
      }
      if (value != null) {
        Long before = value.value();
        System.out.println("READ " + (before == null ? 0 : 1));
        value.update(x);
      } else if (list != null) {
        int n = 0;
        for (Long one : list.get()) {
          n++;
        }
        System.out.println("READ " + n);
        list.update(Arrays.asList(x));
      } else {
        int n = 0;
        for (Map.Entry<Long, Long> one : map.entries()) {
          n++;
        }
        System.out.println("READ " + n);
        map.put(0L, x);
      }
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      if (Touch.done.contains(x % Touch.KEYS)) {
        return;
      }
      touch(x);
      Touch.done.add(x % Touch.KEYS);
    }
  }

  public static void main(String[] a) throws Exception {
    Touch.run(a, 3, x -> x % Touch.KEYS, Types.LONG, new Keep(a[1], a[2].equals("ttl")));
  }
}
