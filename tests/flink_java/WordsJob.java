import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The job of tests/bench/flink/bench_flink_words.py on Flink, in one JVM: how often each word of a folder of text occurs.
 *
 * <p>Arguments: folder, parallelism, then options of Flink as key=value. Prints how many words it has counted, and the
 * milliseconds of the job.
 */
public class WordsJob {
  public static class Count extends KeyedProcessFunction<String, String, Tuple2<String, Long>> {
    private final LongCounter words = new LongCounter();
    private transient ValueState<Long> count;

    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.LONG));
      getRuntimeContext().addAccumulator("words", words);
    }

    public void processElement(String word, Context context, Collector<Tuple2<String, Long>> out) throws Exception {
      Long before = count.value();
      long n = before == null ? 1 : before + 1;
      count.update(n);
      words.add(1);
      out.collect(Tuple2.of(word, n));
    }
  }

  public static void main(String[] args) throws Exception {
    Configuration options = new Configuration();
    for (int i = 2; i < args.length; i++) {
      int at = args[i].indexOf('=');
      options.setString(args[i].substring(0, at), args[i].substring(at + 1));
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(args[1]), options);
    env.fromSource(FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(args[0])).build(),
            WatermarkStrategy.noWatermarks(), "lines")
        .flatMap((String line, Collector<String> out) -> {
          for (int at = 0; at < line.length(); ) {
            int end = line.indexOf(' ', at);
            if (end < 0) end = line.length();
            if (end > at) out.collect(line.substring(at, end));
            at = end + 1;
          }
        }, Types.STRING)
        .keyBy(word -> word, Types.STRING)
        .process(new Count(), Types.TUPLE(Types.STRING, Types.LONG))
        .sinkTo(new DiscardingSink<>());
    JobExecutionResult result = env.execute("words");
    System.out.println("counted " + result.getAccumulatorResult("words") + " words in " + result.getNetRuntime() + " ms");
    System.exit(0);
  }
}
