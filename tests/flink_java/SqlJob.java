import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs statements of SQL until it is killed. Compiles with Flink 1.18 to 2.3.
 *
 * <p>Arguments: a file of statements, then options of Flink as key=value. The statements are separated by ";". Those that
 * begin with INSERT are one job.
 */
public class SqlJob {
  public static void main(String[] a) throws Exception {
    Configuration c = Local.options(a, 1);
    c.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    StreamTableEnvironment tables = StreamTableEnvironment.create(e);
    StatementSet inserts = tables.createStatementSet();
    for (String statement : new String(Files.readAllBytes(Path.of(a[0]))).split(";")) {
      if (statement.trim().startsWith("INSERT")) {
        inserts.addInsertSql(statement);
      } else if (!statement.trim().isEmpty()) {
        tables.executeSql(statement);
      }
    }
    inserts.execute().await();
    System.exit(0);
  }
}
