import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.common.typeutils.base.VoidSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import PACKAGE.TwoPhaseCommitSinkFunction;

/**
 * A job whose sink commits in two phases, with a class that Flink 1 and Flink 2 have in other packages: a transaction is a
 * name, and its commit prints it.
 *
 * <p>Arguments: a folder for checkpoints, how many numbers, milliseconds that one takes, then options of Flink as
 * key=value.
 */
public class TwoPhaseJob {
  static class Print extends TwoPhaseCommitSinkFunction<Long, String, Void> {
    Print() {
      super(StringSerializer.INSTANCE, VoidSerializer.INSTANCE);
    }

    @Override
    protected void invoke(String transaction, Long value, Context context) {}

    @Override
    protected String beginTransaction() {
      return "transaction-" + System.nanoTime();
    }

    @Override
    protected void preCommit(String transaction) {}

    @Override
    protected void commit(String transaction) {
      System.out.println("COMMIT " + transaction);
    }

    @Override
    protected void abort(String transaction) {}
  }

  static class Slow implements MapFunction<Long, Long> {
    final long millis;

    Slow(long millis) {
      this.millis = millis;
    }

    @Override
    public Long map(Long number) throws Exception {
      Thread.sleep(millis);
      return number;
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
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(1, c);
    e.fromSequence(0, Long.parseLong(a[1]) - 1)
        .uid("numbers")
        .map(new Slow(Long.parseLong(a[2])))
        .returns(Types.LONG)
        .uid("slow")
        .addSink(new Print())
        .uid("topic");
    e.execute("two phases");
    System.exit(0);
  }
}
