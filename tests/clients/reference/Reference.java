import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.CustomizedRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicyType;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A real name server, broker and proxy in one process. Makes topics and groups as lines of its input ask:
 * {@code topic NAME TYPE QUEUES}, {@code group NAME ORDERLY RETRIES BACKOFF_MS,...}; answers each with a line.
 */
final class Reference {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // the proxy prints to it
        Path folder = Path.of(args[0]);
        int port = Integer.parseInt(args[1]);
        String namesrv = "127.0.0.1:" + port;
        String broker = "127.0.0.1:" + (port + 4);

        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(folder.resolve("kvConfig.json").toString());
        config.setConfigStorePath(folder.resolve("namesrv.properties").toString());
        NamesrvController controller = new NamesrvController(config, server);
        controller.initialize();
        controller.start();
        ProxyStartup.main(new String[] {
            "-pc", folder.resolve("proxy.json").toString(), "-pm", "local",
            "-bc", folder.resolve("broker.conf").toString(), "-n", namesrv});

        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin");
        admin.setVipChannelEnabled(false);
        admin.start();
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                perform(admin, broker, line.split(" "));
                out.println("ok");
            } catch (Exception error) {
                out.println("failed: " + error);
            }
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static boolean isRouted(DefaultMQAdminExt admin, String topic) throws Exception {
        try {
            return !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty();
        } catch (MQClientException error) {
            return false;
        }
    }

    private static void perform(DefaultMQAdminExt admin, String broker, String[] words) throws Exception {
        if (words[0].equals("topic")) {
            int queues = Integer.parseInt(words[3]);
            TopicConfig topic = new TopicConfig(words[1], queues, queues);
            topic.setAttributes(Map.of("+message.type", words[2]));
            admin.createAndUpdateTopicConfig(broker, topic);
            for (int tries = 0; !isRouted(admin, words[1]); tries++) { // the name server learns of it a moment later
                if (tries == 3000) {
                    throw new IllegalStateException("no route of " + words[1]);
                }
                Thread.sleep(10);
            }
            return;
        }
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(words[1]);
        group.setConsumeMessageOrderly(Boolean.parseBoolean(words[2]));
        group.setRetryMaxTimes(Integer.parseInt(words[3]));
        if (words.length > 4) {
            GroupRetryPolicy policy = new GroupRetryPolicy();
            policy.setType(GroupRetryPolicyType.CUSTOMIZED);
            policy.setCustomizedRetryPolicy(
                new CustomizedRetryPolicy(Arrays.stream(words[4].split(",")).mapToLong(Long::parseLong).toArray()));
            group.setGroupRetryPolicy(policy);
        }
        admin.createAndUpdateSubscriptionGroupConfig(broker, group);
    }
}
