import java.util.*;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;

/**
 * Runs a job until it has touched the state of each key, prints `TOUCHED` and ends the job with a savepoint. Compiles with
 * Flink 1.20 and 2.x.
 *
 * <p>Options: `touch.end`, another format of the savepoint or another end of `Local.end`; `touch.parallelism`.
 */
class Touch {
  static final int KEYS = 4;

  /** The keys whose state has been touched. */
  static final Set<Long> done = Collections.synchronizedSet(new HashSet<>());

  static class Slow implements MapFunction<Long, Long> {
    @Override
    public Long map(Long x) throws Exception {
      Thread.sleep(20);
      return x;
    }
  }

  /**
   * Runs the job, and ends this process; with code 3 if the job fails.
   *
   * @param a a folder for savepoints, arguments of the job, and from `from` on options of Flink as key=value
   */
  static <K> void run(
      String[] a, int from, KeySelector<Long, K> key, TypeInformation<K> type, KeyedProcessFunction<K, Long, Long> keep)
      throws Exception {
    Configuration c = Local.options(a, from);
    c.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(
        Integer.parseInt(c.getString("touch.parallelism", "1")), c);
    e.fromSequence(0, 99_999_999L).uid("numbers").map(new Slow()).returns(Types.LONG)
        .keyBy(key, type)
        .process(keep)
        .uid("keep")
        .returns(Types.LONG)
        .print();
    JobClient j = e.executeAsync("touch");
    while (done.size() < KEYS) {
      if (j.getJobStatus().get().isGloballyTerminalState()) {
        System.out.println("ENDED " + j.getJobStatus().get());
        System.exit(3);
      }
      Thread.sleep(50);
    }
    System.out.println("TOUCHED " + KEYS);
    Local.end(j, a[0], c.getString("touch.end", "CANONICAL"));
  }
}
