import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * A query of tests/bench/nexmark on Flink SQL, in one JVM, exactly-once into files.
 *
 * <p>Arguments: a file of statements, parallelism, a folder or "-", then options of Flink as key=value. The statements
 * are separated by ";"; the last one is an INSERT, or, where there is a folder, a query whose answers change: its
 * changes go there, a line each. Prints the milliseconds of the job, and those of processor.
 */
public class NexmarkJob {
  public static void main(String[] args) throws Exception {
    Configuration options = new Configuration();
    for (int i = 3; i < args.length; i++) {
      int at = args[i].indexOf('=');
      options.setString(args[i].substring(0, at), args[i].substring(at + 1));
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(args[1]), options);
    StreamTableEnvironment tables = StreamTableEnvironment.create(env);
    OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long before = system.getProcessCpuTime();
    String[] statements = new String(Files.readAllBytes(Path.of(args[0])), StandardCharsets.UTF_8).split(";");
    for (int i = 0; i < statements.length - 1; i++) tables.executeSql(statements[i]);
    String last = statements[statements.length - 1];
    long milliseconds;
    if (args[2].equals("-")) {
      TableResult result = tables.executeSql(last);
      milliseconds = result.getJobClient().get().getJobExecutionResult().get().getNetRuntime();
    } else {
      tables.toChangelogStream(tables.sqlQuery(last))
          .map(row -> row.toString(), Types.STRING)
          .sinkTo(FileSink.forRowFormat(new org.apache.flink.core.fs.Path(args[2]), new SimpleStringEncoder<String>())
              .withRollingPolicy(OnCheckpointRollingPolicy.build()).build());
      milliseconds = env.execute("query").getNetRuntime();
    }
    long used = (system.getProcessCpuTime() - before) / 1_000_000;
    System.out.println("ran for " + milliseconds + " ms, " + used + " of processor");
    System.exit(0);
  }
}
