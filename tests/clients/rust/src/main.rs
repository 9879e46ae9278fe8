//! Runs the official Rust client by commands: one JSON object a line in, one a line out. README.md lists them.
//! This release has producers and simple consumers only, which cannot change a lease, and no recall.

use std::collections::HashMap;
use std::env;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

type Failure = Box<dyn std::error::Error + Send + Sync>;

enum Client {
    Producer(Producer),
    Simple(SimpleConsumer, String, FilterExpression),
}

#[derive(Default)]
struct Driver {
    address: String,
    tls: bool,
    clients: Mutex<HashMap<String, Arc<Client>>>,
    taken: Mutex<Vec<Arc<MessageView>>>,
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or("")
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8).collect()
}

fn described(message: &MessageView) -> Value {
    let body = message.body();
    let mut keys = message.keys().to_vec();
    keys.sort();
    let mut found = json!({
        "id": message.message_id(), "topic": message.topic(), "size": body.len(), "tag": message.tag(),
        "keys": keys, "properties": message.properties(), "message_group": message.message_group(),
        "attempt": message.delivery_attempt(), "born_ms": message.born_timestamp() * 1000,
    });
    if body.len() <= 1000 {
        found["body"] = json!(String::from_utf8_lossy(body));
    } else {
        found["pattern"] = json!(body == pattern(body.len()));
    }
    found
}

fn outgoing(wanted: &Value, in_transaction: bool) -> Result<impl Message, Failure> {
    let body = match wanted["size"].as_u64() {
        Some(size) => pattern(size as usize),
        None => text(wanted, "body").as_bytes().to_vec(),
    };
    let topic = text(wanted, "topic");
    let mut message = match (wanted["message_group"].as_str(), wanted["deliver_ms"].as_i64()) {
        _ if in_transaction => MessageBuilder::transaction_message_builder(topic, body),
        (Some(group), _) => MessageBuilder::fifo_message_builder(topic, body, group),
        (None, Some(deliver_ms)) => {
            let seconds = deliver_ms.div_euclid(1000) + (deliver_ms.rem_euclid(1000) != 0) as i64; // whole ones
            MessageBuilder::delay_message_builder(topic, body, seconds)
        }
        (None, None) => MessageBuilder::builder().set_topic(topic).set_body(body),
    };
    if let Some(tag) = wanted["tag"].as_str() {
        message = message.set_tag(tag);
    }
    if let Some(keys) = wanted["keys"].as_array() {
        message = message.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(properties) = wanted["properties"].as_object() {
        message = message.set_properties(
            properties.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_string())).collect(),
        );
    }
    Ok(message.build()?)
}

/// Decides about an orphaned transaction as the message's own property says.
fn check(_transaction_id: String, message: MessageView) -> TransactionResolution {
    match message.properties().get("checked").map(String::as_str) {
        Some("COMMIT") => TransactionResolution::COMMIT,
        _ => TransactionResolution::ROLLBACK,
    }
}

impl Driver {
    fn client(&self, command: &Value) -> Result<Arc<Client>, Failure> {
        let name = text(command, "name");
        self.clients.lock().unwrap().get(name).cloned().ok_or_else(|| format!("no client {name}").into())
    }

    fn view(&self, command: &Value) -> Arc<MessageView> {
        self.taken.lock().unwrap()[command["ref"].as_u64().unwrap() as usize].clone()
    }

    async fn start(&self, command: &Value) -> Result<Client, Failure> {
        let mut option = ClientOption::default();
        option.set_access_url(self.address.clone());
        option.set_enable_tls(self.tls);
        if let (Ok(access_key), Ok(secret_key)) = (env::var("DRIVER_ACCESS_KEY"), env::var("DRIVER_SECRET_KEY")) {
            if !access_key.is_empty() {
                option.set_access_key(access_key);
                option.set_secret_key(secret_key);
            }
        }
        let topic = text(command, "topic").to_string();
        if text(command, "kind") == "producer" {
            let mut wanted = ProducerOption::default();
            wanted.set_logging_format(LoggingFormat::Json);
            wanted.set_topics(vec![topic]);
            let mut producer = if command["checks"].as_bool().unwrap_or(false) {
                Producer::new_transaction_producer(wanted, option, Box::new(check))?
            } else {
                Producer::new(wanted, option)?
            };
            producer.start().await?;
            return Ok(Client::Producer(producer));
        }
        option.set_long_polling_timeout(Duration::from_millis(command["await_ms"].as_u64().unwrap_or(5000)));
        let mut wanted = SimpleConsumerOption::default();
        wanted.set_logging_format(LoggingFormat::Json);
        wanted.set_topics(vec![topic.clone()]);
        wanted.set_consumer_group(text(command, "group"));
        let filter = match command["filter"]["sql"].as_str() {
            Some(sql) => FilterExpression::new(FilterType::Sql, sql),
            None => FilterExpression::new(FilterType::Tag, command["filter"]["tag"].as_str().unwrap_or("*")),
        };
        let mut consumer = SimpleConsumer::new(wanted, option)?;
        consumer.start().await?;
        Ok(Client::Simple(consumer, topic, filter))
    }

    async fn send(&self, command: &Value) -> Result<Value, Failure> {
        let Client::Producer(producer) = &*self.client(command)? else { return Err("not a producer".into()) };
        let wanted = command["messages"].as_array().ok_or("no messages")?;
        let messages = wanted.iter().map(|each| outgoing(each, false)).collect::<Result<Vec<_>, _>>()?;
        let mut ids = vec![];
        if command["together"].as_bool().unwrap_or(false) {
            ids.extend(producer.batch_send(messages).await?.iter().map(|receipt| receipt.message_id().to_string()));
        } else {
            for message in messages {
                ids.push(producer.send(message).await?.message_id().to_string());
            }
        }
        Ok(json!({ "ids": ids, "recall_handles": vec![Value::Null; ids.len()] }))
    }

    async fn send_transaction(&self, command: &Value) -> Result<Value, Failure> {
        let Client::Producer(producer) = &*self.client(command)? else { return Err("not a producer".into()) };
        let transaction = producer.send_transaction_message(outgoing(&command["message"], true)?).await?;
        let ids = [transaction.message_id().to_string()];
        match text(command, "end") {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => {}
        }
        Ok(json!({ "ids": ids }))
    }

    async fn perform(&self, command: &Value) -> Result<Value, Failure> {
        match text(command, "do") {
            "start" => {
                let started = Arc::new(self.start(command).await?);
                self.clients.lock().unwrap().insert(text(command, "name").to_string(), started);
                Ok(json!({}))
            }
            "send" => self.send(command).await,
            "send_transaction" => self.send_transaction(command).await,
            "receive" => {
                let Client::Simple(consumer, topic, filter) = &*self.client(command)? else {
                    return Err("not a consumer".into());
                };
                let most = command["max"].as_i64().unwrap_or(32) as i32;
                let lease = Duration::from_millis(command["invisible_ms"].as_u64().unwrap_or(0));
                let mut found = vec![];
                for message in consumer.receive_with(topic, filter, most, lease).await? {
                    let mut one = described(&message);
                    let mut taken = self.taken.lock().unwrap();
                    one["ref"] = json!(taken.len());
                    taken.push(Arc::new(message));
                    found.push(one);
                }
                Ok(json!({ "messages": found }))
            }
            "ack" => {
                let Client::Simple(consumer, _, _) = &*self.client(command)? else {
                    return Err("not a consumer".into());
                };
                consumer.ack(&*self.view(command)).await?;
                Ok(json!({}))
            }
            "stop" => {
                let client = self.clients.lock().unwrap().remove(text(command, "name")).ok_or("no such client")?;
                match Arc::into_inner(client).ok_or("the client is in use")? {
                    Client::Producer(producer) => producer.shutdown().await?,
                    Client::Simple(consumer, _, _) => consumer.shutdown().await?,
                }
                Ok(json!({}))
            }
            other => Err(format!("no such command: {other}").into()),
        }
    }
}

#[tokio::main]
async fn main() {
    std::fs::create_dir_all("logs").expect("the client's log wants a directory"); // logs/rocketmq_client.log
    let driver = Arc::new(Driver {
        address: env::args().nth(1).expect("ADDRESS plain|tls"),
        tls: env::args().nth(2).as_deref() == Some("tls"),
        ..Driver::default()
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let driver = driver.clone();
        tokio::spawn(async move {
            let command: Value = serde_json::from_str(&line).expect("a JSON object");
            let mut said = match driver.perform(&command).await {
                Ok(found) => found,
                Err(error) => json!({ "error": error.to_string() }),
            };
            said["id"] = command["id"].clone();
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{said}").and_then(|()| out.flush());
        });
    }
}
