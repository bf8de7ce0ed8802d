-- One table a statement; each may be made by another dlock at the same time.
CREATE TABLE IF NOT EXISTS {lock} (name varchar(64) PRIMARY KEY,
  lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
CREATE TABLE IF NOT EXISTS {holder} (name varchar(64) PRIMARY KEY,
  owner varchar(255) NOT NULL, token bigint NOT NULL, ttl_ms bigint NOT NULL, about text NOT NULL, ask text);
CREATE TABLE IF NOT EXISTS {member} (name varchar(64) NOT NULL, owner char(32) NOT NULL, mode varchar(16) NOT NULL,
  slot integer, token bigint NOT NULL, since timestamp NOT NULL, until timestamp NOT NULL, ttl_ms bigint NOT NULL,
  hold_ms bigint NOT NULL, done boolean NOT NULL, about text NOT NULL, ask text, PRIMARY KEY (name, owner));
CREATE UNLOGGED TABLE IF NOT EXISTS {queue} (name varchar(64) NOT NULL, owner char(32) NOT NULL, mode varchar(16) NOT NULL,
  ticket bigint GENERATED ALWAYS AS IDENTITY, alive_until timestamp NOT NULL, since timestamp NOT NULL, about text NOT NULL,
  PRIMARY KEY (name, owner));
CREATE TABLE IF NOT EXISTS {once} (name varchar(64) NOT NULL, length_ms bigint NOT NULL, period bigint NOT NULL,
  at_ms bigint NOT NULL, done text NOT NULL, PRIMARY KEY (name, length_ms));
CREATE TABLE IF NOT EXISTS {record} (name varchar(64) NOT NULL, what varchar(16) NOT NULL, record varchar(160) NOT NULL,
  owner varchar(32) NOT NULL, version bigint NOT NULL, until timestamp NOT NULL, life_ms bigint NOT NULL, content text NOT NULL,
  PRIMARY KEY (name, what, record), UNIQUE (until, name, what, record));
