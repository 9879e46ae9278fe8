// Runs the official Node.js client by commands: one JSON object a line in, one a line out. README.md lists them.
'use strict';
const readline = require('node:readline');
const { once } = require('node:events');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [ , , endpoints, transport ] = process.argv;
const RESOLUTIONS = { COMMIT: 1, ROLLBACK: 2 }; // TransactionResolution of the wire
const SQL = 2; // FilterType of the wire; 1 is TAG
const clients = new Map();
const taken = [];
const credentials = () => (process.env.DRIVER_ACCESS_KEY
  ? { accessKey: process.env.DRIVER_ACCESS_KEY, accessSecret: process.env.DRIVER_SECRET_KEY } : undefined);
const quiet = { debug() {}, info() {}, warn() {}, error() {}, close() {} };

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

function pattern(size) {
  const body = Buffer.alloc(size);
  for (let i = 0; i < size; i++) body[i] = i % 251;
  return body;
}

function options(command) {
  return {
    endpoints, namespace: '', sslEnabled: transport === 'tls', sessionCredentials: credentials(), logger: process.env.DRIVER_LOG ? console : quiet,
    consumerGroup: command.group,
  };
}

function described(message) {
  const found = {
    id: message.messageId,
    topic: message.topic,
    size: message.body.length,
    tag: message.tag || null,
    keys: [ ...message.keys ].sort(),
    properties: Object.fromEntries(message.properties),
    message_group: message.messageGroup || null,
    attempt: message.deliveryAttempt,
    born_ms: message.bornTimestamp ? message.bornTimestamp.getTime() : null,
  };
  if (message.body.length <= 1000) found.body = message.body.toString();
  else found.pattern = message.body.equals(pattern(message.body.length));
  return found;
}

function subscriptions(command) {
  const wanted = command.filter ?? {};
  const filter = wanted.sql ? new FilterExpression(wanted.sql, SQL) : new FilterExpression(wanted.tag ?? '*');
  return new Map([[ command.topic, filter ]]);
}

// Fails and sleeps as the message's own properties ask for.
function listener(name) {
  const calls = new Map();
  return {
    async consume(message) {
      const call = (calls.get(message.messageId) ?? 0) + 1;
      calls.set(message.messageId, call);
      say({ event: 'call', name, call, message: described(message) });
      const sleep = Number(message.properties.get('sleep_ms') ?? 0);
      if (sleep) await new Promise(done => setTimeout(done, sleep));
      const ok = call > Number(message.properties.get('fail_times') ?? 0);
      say({ event: 'return', name, call, id: message.messageId, ok });
      return ok ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    },
  };
}

// Decides about an orphaned transaction as the message's own property says.
const checker = {
  check(message) {
    return RESOLUTIONS[message.properties.get('checked') ?? 'ROLLBACK'];
  },
};

function outgoing(wanted) {
  return {
    topic: wanted.topic,
    body: wanted.size ? pattern(wanted.size) : Buffer.from(wanted.body),
    tag: wanted.tag,
    keys: wanted.keys ?? [],
    messageGroup: wanted.message_group,
    deliveryTimestamp: wanted.deliver_ms ? new Date(wanted.deliver_ms) : undefined,
    properties: new Map(Object.entries(wanted.properties ?? {})),
  };
}

const commands = {
  async start(command) {
    let client;
    if (command.kind === 'producer') {
      client = new Producer({ ...options(command), topics: [ command.topic ], checker: command.checks ? checker : undefined });
    } else if (command.kind === 'simple') {
      client = new SimpleConsumer({
        ...options(command), subscriptions: subscriptions(command), awaitDuration: command.await_ms ?? 5000,
      });
    } else {
      client = new PushConsumer({
        ...options(command), subscriptions: subscriptions(command), messageListener: listener(command.name),
      });
    }
    await client.startup();
    clients.set(command.name, client);
    return {};
  },
  async send(command) {
    const receipts = [];
    for (const wanted of command.messages) {
      receipts.push(await clients.get(command.name).send(outgoing(wanted)));
    }
    return { ids: receipts.map(each => each.messageId), recall_handles: receipts.map(each => each.recallHandle) };
  },
  async recall(command) {
    const receipt = await clients.get(command.name).recallMessage(command.topic, command.recall_handle);
    return { message_id: receipt.messageId };
  },
  async send_transaction(command) {
    const producer = clients.get(command.name);
    const transaction = producer.beginTransaction();
    const sent = await producer.send(outgoing(command.message), transaction);
    if (command.end === 'commit') await transaction.commit();
    if (command.end === 'rollback') await transaction.rollback();
    return { ids: [ sent.messageId ] };
  },
  async receive(command) {
    const messages = await clients.get(command.name).receive(command.max, command.invisible_ms);
    return { messages: messages.map(message => ({ ...described(message), ref: taken.push(message) - 1 })) };
  },
  async ack(command) {
    await clients.get(command.name).ack(taken[command.ref]);
    return {};
  },
  async change(command) {
    await clients.get(command.name).changeInvisibleDuration(taken[command.ref], command.invisible_ms);
    return {};
  },
  async stop(command) {
    const client = clients.get(command.name);
    clients.delete(command.name);
    await client.shutdown();
    return {};
  },
};

async function answer(command) {
  try {
    say({ id: command.id, ...await commands[command.do](command) });
  } catch (error) {
    say({ id: command.id, error: `${error.name}: ${error.message}`, code: Number.isInteger(error.code) ? error.code : null });
  }
}

process.on('unhandledRejection', error => process.stderr.write(`unhandled: ${error.stack}\n`));
async function main() {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', line => { answer(JSON.parse(line)); });
  await once(lines, 'close');
  process.exit(0);
}
main();
