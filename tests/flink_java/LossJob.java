import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.util.Collector;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;

/**
 * The job of tests/bench/engine/bench_loss.py on Flink: the same files at the same pace, a count and the newest row of each key,
 * and lines of the same form (tests/support/jobs/loss.py) of what is processed.
 *
 * <p>Arguments: folder, parallel or shuffled, rate, backlog, width, keys of each source with commas between, then options
 * of Flink as key=value.
 */
public class LossJob {
  static class Lines implements Closeable {
    private final String kind;
    private final int task;
    private final FileOutputStream file;
    private final long pid = ProcessHandle.current().pid();
    private final long[] rows, first, last, wrong, since;

    Lines(String folder, String kind, int task, int width) throws IOException {
      this.kind = kind;
      this.task = task;
      file = new FileOutputStream(folder + "/log/" + pid + "-" + kind + "-" + task + "-" + System.nanoTime());
      rows = new long[width];
      first = new long[width];
      last = new long[width];
      wrong = new long[width];
      since = new long[width];
    }

    void add(int source, long number, boolean isWrong) throws IOException {
      if (rows[source]++ == 0) {
        first[source] = number;
        since[source] = System.nanoTime();
      }
      last[source] = number;
      if (isWrong) wrong[source]++;
      if (rows[source] >= 250 || (rows[source] % 16 == 0 && System.nanoTime() - since[source] > 10_000_000L)) {
        java.time.Instant now = java.time.Instant.now();
        String line = String.format(Locale.ROOT, "%d.%06d %d %s %d %d %d %d %d %d\n", now.getEpochSecond(),
            now.getNano() / 1000, pid, kind, task, source, rows[source], first[source], last[source], wrong[source]);
        file.write(line.getBytes(StandardCharsets.US_ASCII));
        rows[source] = wrong[source] = 0;
      }
    }

    public void close() throws IOException {
      file.close();
    }
  }

  public static class Source extends RichParallelSourceFunction<Tuple2<Long, Long>> implements CheckpointedFunction {
    private final String folder;
    private final double rate;
    private final long backlog;
    private final int width;
    private final int only;
    private volatile boolean running = true;
    private transient ListState<Long> position;
    private transient int file;
    private transient int row;

    /** only: the source whose files it has, or -1 for that of its subtask. */
    Source(String folder, double rate, long backlog, int width, int only) {
      this.folder = folder;
      this.rate = rate;
      this.backlog = backlog;
      this.width = width;
      this.only = only;
    }

    private double begin() throws IOException {
      Path now = Paths.get(folder, "begin-" + UUID.randomUUID());
      Files.writeString(now, String.format(Locale.ROOT, "%.3f", System.currentTimeMillis() / 1000.0));
      try {
        Files.createLink(Paths.get(folder, "begin"), now);
      } catch (FileAlreadyExistsException e) {
        // Another was first, or this one before it was started again.
      }
      return Double.parseDouble(Files.readString(Paths.get(folder, "begin")).trim());
    }

    public void run(SourceContext<Tuple2<Long, Long>> context) throws Exception {
      int source = only >= 0 ? only : getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
      String[] names = new File(folder, "in").list();
      Arrays.sort(names);
      double begin = begin();
      try (Lines lines = new Lines(folder, "read", source, width)) {
        while (running && file * width + source < names.length) {
          byte[] data = Files.readAllBytes(Paths.get(folder, "in", names[file * width + source]));
          int at = 0;
          for (int i = 0; at < data.length && running; i++) {
            long[] numbers = new long[2];
            for (int column = 0; column < 2; column++) {
              while (data[at] < '0' || data[at] > '9') at++;
              for (; data[at] >= '0' && data[at] <= '9'; at++) numbers[column] = numbers[column] * 10 + data[at] - '0';
            }
            while (at < data.length && data[at++] != '\n') {}
            if (i == 0) {
              double due = begin + Math.max(0, numbers[1] / width - backlog) / rate;
              long wait = (long) (due * 1000) - System.currentTimeMillis();
              if (wait > 0) Thread.sleep(wait);
            }
            if (i < row) continue;
            synchronized (context.getCheckpointLock()) {
              context.collect(Tuple2.of(numbers[0], numbers[1]));
              row++;
              lines.add(source, numbers[1] / width, false);
            }
          }
          synchronized (context.getCheckpointLock()) {
            file++;
            row = 0;
          }
        }
      }
    }

    public void cancel() {
      running = false;
    }

    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      position.update(Collections.singletonList(((long) file << 32) + row));
    }

    public void initializeState(FunctionInitializationContext context) throws Exception {
      position = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("position", Long.class));
      Iterator<Long> numbers = position.get().iterator();
      if (numbers.hasNext()) {
        long number = numbers.next();
        file = (int) (number >> 32);
        row = (int) number;
      }
    }
  }

  public static class Count extends KeyedProcessFunction<Long, Tuple2<Long, Long>, Long> {
    private final String folder;
    private final int width;
    private final long[] keys;
    private final int only;
    private transient ValueState<Long> count;
    private transient ValueState<Long> newest;
    private transient Lines lines;

    Count(String folder, int width, long[] keys, int only) {
      this.folder = folder;
      this.width = width;
      this.keys = keys;
      this.only = only;
    }

    public void open(OpenContext context) throws Exception {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.LONG));
      newest = getRuntimeContext().getState(new ValueStateDescriptor<>("id", Types.LONG));
      lines = new Lines(folder, "keyed", only >= 0 ? only : getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(),
          width);
    }

    public void processElement(Tuple2<Long, Long> row, Context context, Collector<Long> out) throws Exception {
      Long before = count.value();
      long n = before == null ? 1 : before + 1;
      count.update(n);
      Long id = newest.value();
      newest.update(id == null ? row.f1 : Math.max(id, row.f1));
      int source = (int) (row.f1 % width);
      long number = row.f1 / width;
      lines.add(source, number, n != number / keys[source] + 1);
    }

    public void close() throws Exception {
      if (lines != null) lines.close();
    }
  }

  public static void main(String[] args) throws Exception {
    String folder = args[0];
    double rate = Double.parseDouble(args[2]);
    long backlog = Long.parseLong(args[3]);
    int width = Integer.parseInt(args[4]);
    long[] keys = Arrays.stream(args[5].split(",")).mapToLong(Long::parseLong).toArray();
    Configuration options = new Configuration();
    for (int i = 6; i < args.length; i++) {
      int at = args[i].indexOf('=');
      options.setString(args[i].substring(0, at), args[i].substring(at + 1));
    }
    StreamExecutionEnvironment env = new StreamExecutionEnvironment(options);
    boolean shuffled = args[1].equals("shuffled");
    for (int i = shuffled ? -1 : 0; i < (shuffled ? 0 : width); i++) {
      DataStream<Tuple2<Long, Long>> rows = env
          .addSource(new Source(folder, rate, backlog, width, i), "rows" + i, Types.TUPLE(Types.LONG, Types.LONG))
          .setParallelism(shuffled ? width : 1)
          .slotSharingGroup("group" + i);
      rows.keyBy(row -> row.f0, Types.LONG)
          .process(new Count(folder, width, keys, i), Types.LONG)
          .setParallelism(shuffled ? width : 1)
          .sinkTo(new DiscardingSink<>())
          .setParallelism(shuffled ? width : 1);
    }
    env.executeAsync("loss");
    System.exit(0);
  }
}
