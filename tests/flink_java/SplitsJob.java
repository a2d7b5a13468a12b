import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Lines of files and a sequence of numbers, counted by key: how far it reads in each split shows in the counts, which are
 * printed as `COUNT key n`. A line is `key number`; the numbers' key is `numbers`.
 *
 * <p>Arguments: a folder for checkpoints, a folder of files, the uid of the operator that counts, milliseconds that a
 * record takes, then options of Flink as key=value.
 */
public class SplitsJob {
  static class Slow implements MapFunction<String, String> {
    final long millis;

    Slow(long millis) {
      this.millis = millis;
    }

    @Override
    public String map(String line) throws Exception {
      Thread.sleep(millis);
      return line;
    }
  }

  static class Count extends KeyedProcessFunction<String, String, String> {
    transient ValueState<Long> count;

    @Override
    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(String line, Context c, Collector<String> out) throws Exception {
      long n = count.value() == null ? 1 : count.value() + 1;
      count.update(n);
      System.out.println("COUNT " + c.getCurrentKey() + " " + n);
    }
  }

  public static void main(String[] a) throws Exception {
    Configuration c = Local.options(a, 4);
    Local.keepCheckpoints(c, a[0], "300ms", 3);
    c.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    long millis = Long.parseLong(a[3]);
    DataStream<String> lines =
        e.fromSource(
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path("file://" + a[1])).build(),
                WatermarkStrategy.noWatermarks(),
                "lines")
            .uid("lines")
            .map(new Slow(millis));
    DataStream<String> numbers =
        e.fromSource(new NumberSequenceSource(0, 399), WatermarkStrategy.noWatermarks(), "numbers")
            .uid("numbers")
            .map(n -> "numbers " + n)
            .returns(Types.STRING)
            .map(new Slow(millis));
    lines.union(numbers).keyBy(line -> line.split(" ")[0], Types.STRING).process(new Count()).uid(a[2]);
    e.execute("splits");
    System.exit(0);
  }
}
