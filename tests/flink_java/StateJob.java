import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.operators.*;
import org.apache.flink.streaming.api.functions.source.legacy.*;
import org.apache.flink.streaming.runtime.streamrecord.*;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.runtime.state.*;
import java.time.Duration;
import java.util.*;

/**
 * Makes the snapshots in tests/data/flink/state: keys and namespaces that are both text, timers, state with a time to
 * live, operator state. What each key must hold follows from its number (tests/flink/state/test_state.py).
 *
 * <p>Arguments: an empty directory, CANONICAL, NATIVE or none (a savepoint at the end), max parallelism, parallelism,
 * then options of Flink as key=value.
 */
public class StateJob {
  static volatile int done=0;
  static final int N=24;
  public static class Src implements ParallelSourceFunction<Long>,
        org.apache.flink.streaming.api.checkpoint.CheckpointedFunction {
    volatile boolean run=true;
    ListState<String> ls;
    ListState<Long> us;
    BroadcastState<String, Long> bs;
    public void run(SourceContext<Long> c) throws Exception {
      synchronized(c.getCheckpointLock()) {
        for(long i=0;i<N;i++)c.collect(i);
        for(long i=0;i<N;i+=2)c.collect(i+1000);
      }
      while(run)Thread.sleep(20);
    }
    public void cancel() {
      run=false;
    }
    public void snapshotState(FunctionSnapshotContext c) throws Exception {
      ls.update(Arrays.asList("first","second caf\u00e9","x".repeat(1000)));
      us.update(Arrays.asList(1L, 2L, 3L));
      for(long i=0;i<5;i++)bs.put("b"+i,i);
    }
    public void initializeState(FunctionInitializationContext c) throws Exception {
      ls=c.getOperatorStateStore().getListState(new ListStateDescriptor<>("names",String.class));
      us=c.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union",Long.class));
      bs=c.getOperatorStateStore().getBroadcastState(new MapStateDescriptor<>("cast",String.class,Long.class));
    }
  }
  public static class Op extends AbstractStreamOperator<Long> implements OneInputStreamOperator<Long, Long>,
        Triggerable<String, String> {
    transient InternalTimerService<String> timers;
    public void open() throws Exception {
      super.open();
      timers=getInternalTimerService("strings",StringSerializer.INSTANCE,this);
    }
    ValueStateDescriptor<String> vd=new ValueStateDescriptor<>("v",StringSerializer.INSTANCE);
    ListStateDescriptor<String> ld=new ListStateDescriptor<>("l",StringSerializer.INSTANCE);
    MapStateDescriptor<String,Long> md=new MapStateDescriptor<>("m",StringSerializer.INSTANCE,
          LongSerializer.INSTANCE);
    ReducingStateDescriptor<Long> rd=new ReducingStateDescriptor<>("r",(a,b)->a+b,LongSerializer.INSTANCE);
    public void processElement(StreamRecord<Long> rec) throws Exception {
      long i=rec.getValue();
      boolean second=i>=1000;
      if(second)i-=1000;
      String ns=namespace(i);
      ValueState<String> v=getPartitionedState(ns, StringSerializer.INSTANCE, vd);
      v.update("value "+i+(second?" again":""));
      ListState<String> l=getPartitionedState(ns, StringSerializer.INSTANCE, ld);
      l.add("e"+i);
      if(second)l.add(",comma,");
      MapState<String, Long> m=getPartitionedState(ns, StringSerializer.INSTANCE, md);
      m.put("a",i);
      m.put("b"+i,second?-1L:i);
      if(second&&i%4==0)m.remove("a");
      ReducingState<Long> r=getPartitionedState(ns, StringSerializer.INSTANCE, rd);
      r.add(i);
      if(second&&i%10==0)r.clear();
      timers.registerEventTimeTimer(ns, 5000+i);
      if(second)timers.deleteEventTimeTimer(ns, 5000+i);
      if(second)timers.registerProcessingTimeTimer(ns, 4102444800000L+i);
      synchronized(StateJob.class) {
        done++;
      }
    }
    public void onEventTime(InternalTimer<String, String> t) {
    }
    public void onProcessingTime(InternalTimer<String, String> t) {
    }
  }
  static String namespace(long i) {
    return "ns-"+"z".repeat(i==5?300:(int)(i%3));
  }
  public static class Ttl extends org.apache.flink.streaming.api.functions.KeyedProcessFunction<Long, Long, Long> {
    transient ValueState<String> v;
    transient ListState<Long> l;
    transient MapState<Integer, String> m;
    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      StateTtlConfig t=StateTtlConfig.newBuilder(Duration.ofDays(10000)).build();
      ValueStateDescriptor<String> vd=new ValueStateDescriptor<>("tv",String.class);
      vd.enableTimeToLive(t);
      v=getRuntimeContext().getState(vd);
      ListStateDescriptor<Long> ld=new ListStateDescriptor<>("tl",Long.class);
      ld.enableTimeToLive(t);
      l=getRuntimeContext().getListState(ld);
      MapStateDescriptor<Integer,String> md=new MapStateDescriptor<>("tm",Integer.class,String.class);
      md.enableTimeToLive(t);
      m=getRuntimeContext().getMapState(md);
    }
    public void processElement(Long i, Context c, org.apache.flink.util.Collector<Long> o) throws Exception {
      v.update("t"+i);
      l.add(i);
      l.add(i+1);
      m.put((int)(i%7),"m"+i);
      c.timerService().registerEventTimeTimer(9000+i);
      synchronized(StateJob.class) {
        done++;
      }
    }
  }
  public static void main(String[] a) throws Exception {
    String dir=a[0];
    Configuration c = Local.options(a, 4);
    Local.keepCheckpoints(c, dir + "/ck", "700ms", 2);
    StreamExecutionEnvironment e=StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(a[3]), c);
    e.setMaxParallelism(Integer.parseInt(a[2]));
    DataStream<Long> s=e.addSource(new Src()).setParallelism(1).uid("src");
    s.keyBy(x->"key-"+(x%1000),Types.STRING).transform("op",Types.LONG,new Op()).uid("op");
    s.keyBy(x->x,Types.LONG).process(new Ttl()).uid("ttl");
    JobClient j=e.executeAsync("gen");
    while(done<2*(N+N/2))Thread.sleep(50);
    Thread.sleep(2500);
    Local.end(j, dir + "/sp", a[1]);
  }
}
