import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FileSystem;

/** What jobs of this folder do alike, each on a Flink in its own process. */
class Local {
  /**
   * Options of Flink as key=value, from an argument on, also of file systems; its REST interface is on a free port of
   * this machine alone.
   */
  static Configuration options(String[] arguments, int from) {
    Configuration c = new Configuration();
    for (int i = from; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      c.setString(pair[0], pair[1]);
    }
    FileSystem.initialize(c, null);
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    return c;
  }

  /** A folder's URI: it may be one of a file system that a plug-in on the class path has. */
  static String uri(String folder) {
    return folder.contains("://") ? folder : "file://" + folder;
  }

  /** Checkpoints below a folder; the newest ones stay when the job is cancelled. */
  static void keepCheckpoints(Configuration c, String folder, String interval, int kept) {
    c.setString("execution.checkpointing.dir", uri(folder));
    c.setString("execution.checkpointing.interval", interval);
    c.setString("execution.checkpointing.num-retained", String.valueOf(kept));
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
  }

  /**
   * Ends a job with a savepoint below a folder, of a format of Flink's, or `none`; and then this process. With `hold` it
   * runs on until this process is killed.
   */
  static void end(JobClient job, String folder, String format) throws Exception {
    if (format.equals("hold")) {
      System.out.println("HELD");
      Thread.currentThread().join();
    }
    if (!format.equals("none")) {
      String path = job.triggerSavepoint(uri(folder), SavepointFormatType.valueOf(format)).get();
      System.out.println("SAVEPOINT " + path);
    }
    job.cancel().get();
    Thread.sleep(300);
    System.exit(0);
  }
}
