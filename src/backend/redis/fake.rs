//! An in-process redis server for tests: it runs the scripts as they are sent, in Lua 5.1 as servers do, on a store
//! whose clock the test sets. It knows only the commands that the scripts use: any other command fails the test.
//!
//! It deliberately imitates these details: a key exists until its expiry has *passed* (`now > expiry`, not `>=`), a key
//! without elements is gone, a wrong type is an error that `call` raises and `pcall` returns, numeric arguments are
//! formatted with `%.17g`, numbers in answers are truncated, an answer ends at its first `nil`, `false` is nil, and the
//! clock stands still while a script runs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use ::redis::{Cmd, Value};
use mlua::{Function, Lua, Variadic};

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::backend) enum Thing {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Scores are whole numbers here.
    Sorted(BTreeMap<Vec<u8>, i64>),
    List(Vec<Vec<u8>>),
}

impl Thing {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
            Self::List(_) => "list",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(all) => all.is_empty(),
            Self::Sorted(all) => all.is_empty(),
            Self::List(all) => all.is_empty(),
        }
    }
}

/// The data of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::backend) struct Store {
    /// Microseconds since 1970.
    pub(in crate::backend) micros: u64,
    /// Each key with the millisecond at which it expires.
    pub(in crate::backend) keys: BTreeMap<Vec<u8>, (Thing, Option<u64>)>,
}

enum Reply {
    Status(&'static str),
    Error(String),
    Int(i64),
    Text(Vec<u8>),
    Nil,
    Many(Vec<Reply>),
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

macro_rules! at {
    ($store:expr, $key:expr, $kind:ident) => {
        match $store.keys.get_mut($key) {
            None => None,
            Some((Thing::$kind(all), _)) => Some(all),
            Some(_) => return Reply::Error(WRONG_TYPE.to_owned()),
        }
    };
}

macro_rules! make {
    ($store:expr, $key:expr, $kind:ident) => {
        match &mut $store.keys.entry($key.clone()).or_insert((Thing::$kind(Default::default()), None)).0 {
            Thing::$kind(all) => all,
            _ => return Reply::Error(WRONG_TYPE.to_owned()),
        }
    };
}

fn number(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).expect("a number");
    text.parse().unwrap_or_else(|_| {
        let number: f64 = text.parse().unwrap_or_else(|_| panic!("no number: {text:?}"));
        assert!(number.fract() == 0.0, "{number}");
        number as i64
    })
}

impl Store {
    pub(in crate::backend) fn at(millis: u64) -> Self {
        Self { micros: millis * 1000, keys: BTreeMap::new() }
    }

    pub(in crate::backend) fn now(&self) -> u64 {
        self.micros / 1000
    }

    /// Lets time pass.
    pub(in crate::backend) fn pass(&mut self, millis: u64) {
        self.micros += millis * 1000;
        self.expire();
    }

    fn expire(&mut self) {
        let now = self.now();
        self.keys.retain(|_, (thing, ends)| !thing.is_empty() && ends.is_none_or(|ends| now <= ends));
    }

    fn sorted(&self, key: &[u8]) -> Option<Vec<(Vec<u8>, i64)>> {
        match self.keys.get(key) {
            None => Some(Vec::new()),
            Some((Thing::Sorted(all), _)) => {
                let mut all: Vec<_> = all.iter().map(|(member, score)| (member.clone(), *score)).collect();
                all.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
                Some(all)
            }
            Some(_) => None,
        }
    }

    fn call(&mut self, args: &[Vec<u8>]) -> Reply {
        let name = String::from_utf8_lossy(&args[0]).to_uppercase();
        let key = args.get(1).cloned().unwrap_or_default();
        let reply = match name.as_bytes()[0] {
            b'H' => self.hashes(&name, &key, args),
            b'Z' => self.sorted_sets(&name, &key, args),
            _ => self.keys(&name, &key, args),
        };
        if matches!(name.as_str(), "HDEL" | "ZREM") && self.keys.get(&key).is_some_and(|(thing, _)| thing.is_empty()) {
            self.keys.remove(&key);
        }
        reply
    }

    fn keys(&mut self, name: &str, key: &Vec<u8>, args: &[Vec<u8>]) -> Reply {
        match name {
            "TIME" => {
                let text = |number: u64| Reply::Text(number.to_string().into_bytes());
                Reply::Many(vec![text(self.micros / 1_000_000), text(self.micros % 1_000_000)])
            }
            "TYPE" => Reply::Status(self.keys.get(key).map_or("none", |(thing, _)| thing.kind())),
            "EXISTS" => int(args[1..].iter().filter(|key| self.keys.contains_key(*key)).count()),
            "DEL" => int(args[1..].iter().filter(|key| self.keys.remove(*key).is_some()).count()),
            "PTTL" => match self.keys.get(key) {
                None => Reply::Int(-2),
                Some((_, None)) => Reply::Int(-1),
                Some((_, Some(ends))) => Reply::Int((*ends as i64 - self.now() as i64).max(0)),
            },
            "PEXPIRE" => self.expire_in(key, number(&args[2])),
            "GET" => at!(self, key, Text).map_or(Reply::Nil, |text| Reply::Text(text.clone())),
            "GETRANGE" => {
                let (from, to) = (number(&args[2]) as usize, number(&args[3]) as usize);
                let text = at!(self, key, Text).cloned().unwrap_or_default();
                Reply::Text(text.into_iter().skip(from).take(to + 1 - from).collect())
            }
            "SET" => self.set(key, args),
            "LPUSH" => {
                let all = make!(self, key, List);
                all.insert(0, args[2].clone());
                int(all.len())
            }
            "LLEN" => int(at!(self, key, List).map_or(0, |all| all.len())),
            other => panic!("a script uses {other}, which this server does not know"),
        }
    }

    fn expire_in(&mut self, key: &[u8], left: i64) -> Reply {
        let now = self.now();
        match self.keys.get_mut(key) {
            None => return Reply::Int(0),
            Some(_) if left <= 0 => drop(self.keys.remove(key)),
            Some((_, ends)) => *ends = Some(now + left as u64),
        }
        Reply::Int(1)
    }

    fn set(&mut self, key: &[u8], args: &[Vec<u8>]) -> Reply {
        let ends = match args.get(3).map(Vec::as_slice) {
            None => None,
            Some(b"PX") => Some(number(&args[4])),
            Some(b"EX") => Some(number(&args[4]) * 1000),
            Some(other) => panic!("SET {other:?}"),
        };
        if ends.is_some_and(|ends| ends <= 0) {
            return Reply::Error("ERR invalid expire time in 'set' command".to_owned());
        }
        let ends = ends.map(|ends| self.now() + ends as u64);
        self.keys.insert(key.to_vec(), (Thing::Text(args[2].clone()), ends));
        Reply::Status("OK")
    }

    fn hashes(&mut self, name: &str, key: &Vec<u8>, args: &[Vec<u8>]) -> Reply {
        match name {
            "HGET" => at!(self, key, Hash).and_then(|all| all.get(&args[2]).cloned()).map_or(Reply::Nil, Reply::Text),
            "HSET" => {
                let all = make!(self, key, Hash);
                int(args[2..].chunks(2).filter(|pair| all.insert(pair[0].clone(), pair[1].clone()).is_none()).count())
            }
            "HDEL" => at!(self, key, Hash)
                .map_or(Reply::Int(0), |all| int(args[2..].iter().filter(|one| all.remove(*one).is_some()).count())),
            "HLEN" => int(at!(self, key, Hash).map_or(0, |all| all.len())),
            "HKEYS" | "HGETALL" | "HVALS" => {
                let all = at!(self, key, Hash).cloned().unwrap_or_default();
                let pair = |(field, value)| match name {
                    "HVALS" => vec![Reply::Text(value)],
                    "HKEYS" => vec![Reply::Text(field)],
                    _ => vec![Reply::Text(field), Reply::Text(value)],
                };
                Reply::Many(all.into_iter().flat_map(pair).collect())
            }
            other => panic!("a script uses {other}, which this server does not know"),
        }
    }

    fn sorted_sets(&mut self, name: &str, key: &Vec<u8>, args: &[Vec<u8>]) -> Reply {
        match name {
            "ZADD" => {
                let all = make!(self, key, Sorted);
                int(usize::from(all.insert(args[3].clone(), number(&args[2])).is_none()))
            }
            "ZREM" => at!(self, key, Sorted)
                .map_or(Reply::Int(0), |all| int(args[2..].iter().filter(|one| all.remove(*one).is_some()).count())),
            "ZSCORE" => at!(self, key, Sorted)
                .and_then(|all| all.get(&args[2]))
                .map_or(Reply::Nil, |score| Reply::Text(score.to_string().into_bytes())),
            "ZCARD" => at!(self, key, Sorted).map_or(Reply::Int(0), |all| int(all.len())),
            _ => self.sorted_range(name, key, args),
        }
    }

    fn sorted_range(&self, name: &str, key: &[u8], args: &[Vec<u8>]) -> Reply {
        let Some(mut all) = self.sorted(key) else { return Reply::Error(WRONG_TYPE.to_owned()) };
        match name {
            "ZRANK" => return all.iter().position(|(one, _)| *one == args[2]).map_or(Reply::Nil, int),
            "ZRANGEBYSCORE" => {
                assert_eq!(args[2], b"-inf");
                let most = number(&args[3]);
                all.retain(|(_, score)| *score <= most);
            }
            "ZRANGE" | "ZREVRANGE" => {
                if name == "ZREVRANGE" {
                    all.reverse();
                }
                let end = all.len() as i64;
                let place = |text: &[u8]| Some(number(text)).map(|at| if at < 0 { at + end } else { at });
                let (from, to) = (place(&args[2]).unwrap_or(0).max(0), place(&args[3]).unwrap_or(0));
                all = all.into_iter().take((to + 1).max(0) as usize).skip(from as usize).collect();
            }
            other => panic!("a script uses {other}, which this server does not know"),
        }
        let with = args.get(4).is_some();
        let pair = |(member, score): (Vec<u8>, i64)| {
            let score = with.then(|| Reply::Text(score.to_string().into_bytes()));
            std::iter::once(Reply::Text(member)).chain(score)
        };
        Reply::Many(all.into_iter().flat_map(pair).collect())
    }
}

fn int(number: usize) -> Reply {
    Reply::Int(i64::try_from(number).expect("few"))
}

/// A request that can be repeated.
pub(in crate::backend) struct Prepared {
    script: Function,
    keys: mlua::Table,
    arguments: mlua::Table,
}

/// A fake server.
pub(in crate::backend) struct Fake {
    lua: Lua,
    store: Rc<RefCell<Store>>,
    scripts: HashMap<Vec<u8>, Function>,
    /// A mistake in its scripts: the first text is replaced with the second.
    pub(in crate::backend) broken: Option<(&'static str, &'static str)>,
    /// `true` if any script had the first text.
    pub(in crate::backend) is_broken: bool,
    /// Number of requests that it has answered.
    pub(in crate::backend) asked: u64,
}

impl Fake {
    pub(in crate::backend) fn new(store: Store) -> Self {
        let (lua, store) = (Lua::new(), Rc::new(RefCell::new(store)));
        let redis = lua.create_table().expect("a table");
        for (name, raises) in [("call", true), ("pcall", false)] {
            let store = Rc::clone(&store);
            let call = move |lua: &Lua, args: Variadic<mlua::Value>| {
                let args: Vec<Vec<u8>> = args.iter().map(argument).collect();
                let reply = store.borrow_mut().call(&args);
                match reply {
                    Reply::Error(text) if raises => Err(mlua::Error::RuntimeError(text)),
                    reply => to_lua(lua, reply),
                }
            };
            redis.set(name, lua.create_function(call).expect("a function")).expect("set");
        }
        lua.globals().set("redis", redis).expect("set");
        Self { lua, store, scripts: HashMap::new(), broken: None, is_broken: false, asked: 0 }
    }

    /// Returns its data.
    pub(in crate::backend) fn store(&self) -> std::cell::Ref<'_, Store> {
        self.store.borrow()
    }

    /// Returns its data, to be changed.
    pub(in crate::backend) fn change(&self) -> std::cell::RefMut<'_, Store> {
        self.store.borrow_mut()
    }

    /// Prepares this `EVAL`, with the mistake in its script, if one is set.
    pub(in crate::backend) fn prepare(&mut self, command: &Cmd) -> Prepared {
        let words: Vec<&[u8]> = command
            .args_iter()
            .map(|word| match word {
                ::redis::Arg::Simple(word) => word,
                _ => panic!("a cursor"),
            })
            .collect();
        assert_eq!(words[0], b"EVAL");
        if !self.scripts.contains_key(words[1]) {
            let mut text = String::from_utf8_lossy(words[1]).into_owned();
            if let Some((old, new)) = self.broken {
                self.is_broken |= text.contains(old);
                text = text.replace(old, new);
            }
            let script = self.lua.load(text).into_function().expect("a script");
            self.scripts.insert(words[1].to_vec(), script);
        }
        let keys = usize::try_from(number(words[2])).expect("a number of keys");
        let list = |words: &[&[u8]]| {
            let words = words.iter().map(|word| self.lua.create_string(word).expect("a string"));
            self.lua.create_sequence_from(words).expect("a list")
        };
        let (keys, arguments) = (list(&words[3..3 + keys]), list(&words[3 + keys..]));
        Prepared { script: self.scripts[words[1]].clone(), keys, arguments }
    }

    /// Runs the request and returns its answer.
    pub(in crate::backend) fn ask(&mut self, request: &Prepared) -> Result<Value, mlua::Error> {
        self.asked += 1;
        self.store.borrow_mut().expire();
        self.lua.globals().raw_set("KEYS", &request.keys)?;
        self.lua.globals().raw_set("ARGV", &request.arguments)?;
        let answer: mlua::Value = request.script.call(())?;
        Ok(from_lua(&answer))
    }
}

fn argument(value: &mlua::Value) -> Vec<u8> {
    match value {
        mlua::Value::String(text) => text.as_bytes().to_vec(),
        mlua::Value::Integer(number) => number.to_string().into_bytes(),
        // `%.17g`; the scripts need it only for whole numbers below 1e17.
        mlua::Value::Number(number) => {
            assert!(number.fract() == 0.0 && number.abs() < 1e17, "{number}");
            format!("{number:.0}").into_bytes()
        }
        other => panic!("Lua redis lib command arguments must be strings or integers: {other:?}"),
    }
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<mlua::Value> {
    Ok(match reply {
        Reply::Status(text) => {
            let table = lua.create_table()?;
            table.raw_set("ok", text)?;
            mlua::Value::Table(table)
        }
        Reply::Error(text) => {
            let table = lua.create_table()?;
            table.raw_set("err", text)?;
            mlua::Value::Table(table)
        }
        #[expect(clippy::cast_precision_loss, reason = "as servers do")]
        Reply::Int(number) => mlua::Value::Number(number as f64),
        Reply::Text(text) => mlua::Value::String(lua.create_string(text)?),
        Reply::Nil => mlua::Value::Boolean(false),
        Reply::Many(all) => {
            let table = lua.create_table()?;
            for reply in all {
                table.raw_push(to_lua(lua, reply)?)?;
            }
            mlua::Value::Table(table)
        }
    })
}

fn from_lua(value: &mlua::Value) -> Value {
    match value {
        mlua::Value::Nil | mlua::Value::Boolean(false) => Value::Nil,
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Integer(number) => Value::Int(*number),
        mlua::Value::Number(number) => Value::Int(*number as i64),
        mlua::Value::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        mlua::Value::Table(table) => {
            if let Ok(text) = table.get::<String>("ok") {
                return Value::SimpleString(text);
            }
            // As in the server, the answer ends before the first nil.
            let elements = table.sequence_values::<mlua::Value>();
            Value::Array(elements.map(|element| from_lua(&element.expect("an element"))).collect())
        }
        other => panic!("{other:?}"),
    }
}
