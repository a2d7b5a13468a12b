import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;

/** What jobs of this folder do alike, each on a Flink in its own process. */
class Local {
  /** Options of Flink as key=value, from an argument on; its REST interface is on a free port of this machine alone. */
  static Configuration options(String[] arguments, int from) {
    Configuration c = new Configuration();
    for (int i = from; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      c.setString(pair[0], pair[1]);
    }
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    return c;
  }

  /** Checkpoints below a folder; the newest ones stay when the job is cancelled. */
  static void keepCheckpoints(Configuration c, String folder, String interval, int kept) {
    c.setString("execution.checkpointing.dir", "file://" + folder);
    c.setString("execution.checkpointing.interval", interval);
    c.setString("execution.checkpointing.num-retained", String.valueOf(kept));
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
  }

  /** Ends a job with a savepoint below a folder, of a format of Flink's, or `none`; and then this process. */
  static void end(JobClient job, String folder, String format) throws Exception {
    if (!format.equals("none")) {
      String path = job.triggerSavepoint("file://" + folder, SavepointFormatType.valueOf(format)).get();
      System.out.println("SAVEPOINT " + path);
    }
    job.cancel().get();
    Thread.sleep(300);
    System.exit(0);
  }
}
