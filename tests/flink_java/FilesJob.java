import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import PACKAGE.StreamingFileSink;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/**
 * A job with a sink of the old kind, which Flink 1 and Flink 2 have in other packages: numbers from 0 on, into files that
 * appear with a checkpoint.
 *
 * <p>Arguments: a folder for checkpoints and files, how many numbers, milliseconds that one takes, then options of Flink as
 * key=value.
 */
public class FilesJob {
  static class Slow implements MapFunction<Long, String> {
    final long millis;

    Slow(long millis) {
      this.millis = millis;
    }

    @Override
    public String map(Long number) throws Exception {
      Thread.sleep(millis);
      return number.toString();
    }
  }

  public static void main(String[] a) throws Exception {
    Configuration c = new Configuration();
    for (int i = 3; i < a.length; i++) {
      String[] kv = a[i].split("=", 2);
      c.setString(kv[0], kv[1]);
    }
    c.setString("execution.checkpointing.dir", "file://" + a[0] + "/ck");
    c.setString("execution.checkpointing.interval", "400ms");
    c.setString("execution.checkpointing.num-retained", "3");
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    c.setString("restart-strategy.type", "none");
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    StreamingFileSink<String> files =
        StreamingFileSink.forRowFormat(new Path("file://" + a[0] + "/files"), new SimpleStringEncoder<String>("UTF-8"))
            .withRollingPolicy(OnCheckpointRollingPolicy.<String, String>build())
            .build();
    e.fromSequence(0, Long.parseLong(a[1]) - 1)
        .uid("numbers")
        .map(new Slow(Long.parseLong(a[2])))
        .returns(Types.STRING)
        .uid("slow")
        .addSink(files)
        .uid("files");
    e.execute("files");
    System.exit(0);
  }
}
