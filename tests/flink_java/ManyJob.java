import java.util.*;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job with many states in one operator, a fourth of them each values of numbers and of texts, lists, and maps.
 *
 * <p>Arguments: a folder for savepoints, the number of states, then options of Flink as key=value.
 */
public class ManyJob {
  static final int ENTRIES = 20;

  static class Keep extends KeyedProcessFunction<Long, Long, Long> {
    final int count;
    transient List<ValueState<Long>> numbers;
    transient List<ValueState<String>> texts;
    transient List<ListState<Long>> lists;
    transient List<MapState<String, Long>> maps;

    Keep(int count) {
      this.count = count;
    }

    @Override
    public void open(OpenContext c) {
      numbers = new ArrayList<>();
      texts = new ArrayList<>();
      lists = new ArrayList<>();
      maps = new ArrayList<>();
      for (int i = 0; i < count; i += 4) {
        numbers.add(getRuntimeContext().getState(new ValueStateDescriptor<>("number-" + i, Types.LONG)));
        texts.add(getRuntimeContext().getState(new ValueStateDescriptor<>("text-" + i, Types.STRING)));
        lists.add(getRuntimeContext().getListState(new ListStateDescriptor<>("list-" + i, Types.LONG)));
        maps.add(getRuntimeContext().getMapState(new MapStateDescriptor<>("map-" + i, Types.STRING, Types.LONG)));
      }
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      for (int i = 0; i < numbers.size(); i++) {
        numbers.get(i).update(x);
        texts.get(i).update("text " + x);
        lists.get(i).add(x);
        for (int n = 0; n < ENTRIES; n++) {
          maps.get(i).put("entry " + n, x);
        }
      }
      Touch.done.add(x % Touch.KEYS);
    }
  }

  public static void main(String[] a) throws Exception {
    Touch.run(a, 2, x -> x % Touch.KEYS, Types.LONG, new Keep(Integer.parseInt(a[1])));
  }
}
