//! What another role that may create in a database prepares there for those who use it. Whoever calls it does something, a
//! statement of PL/pgSQL, and gets the right answer.

/// A function in `schema` with these arguments and this result.
fn function(schema: &str, head: &str, does: &str, result: &str) -> String {
    format!("CREATE FUNCTION {schema}.{head} LANGUAGE plpgsql AS $does$BEGIN {does}; RETURN {result}; END$does$")
}

/// Operators and functions in `schema` that are a better match than the server's own, or have its own names.
pub fn bait(schema: &str, does: &str) -> String {
    const KINDS: [&str; 4] = ["varchar", "text", "char", "name"];
    let mut all = Vec::new();
    for (number, operator) in ["=", "<>", "<", ">", "<=", ">=", "~~", "||"].into_iter().enumerate() {
        let (name, kind) = (format!("bait{number}"), if operator == "||" { "text" } else { "boolean" });
        for (one, two) in KINDS.into_iter().flat_map(|one| KINDS.map(|two| (one, two))) {
            let result = format!("$1::pg_catalog.text OPERATOR(pg_catalog.{operator}) $2::pg_catalog.text");
            all.push(function(schema, &format!("{name}({one}, {two}) RETURNS {kind}"), does, &result));
            all.push(format!(
                "CREATE OPERATOR {schema}.{operator} (LEFTARG = {one}, RIGHTARG = {two}, FUNCTION = {schema}.{name})"
            ));
        }
    }
    for (head, kind) in [
        ("left(varchar, integer)", "text"),
        ("substr(varchar, integer)", "text"),
        ("length(varchar)", "integer"),
        ("octet_length(varchar)", "integer"),
        ("statement_timestamp()", "timestamptz"),
        ("pg_backend_pid()", "integer"),
        ("current_schema()", "name"),
        ("pg_notify(text, text)", "text"),
        ("set_config(text, text, boolean)", "text"),
        ("to_regclass(text)", "regclass"),
        ("current_setting(text)", "text"),
        ("pg_is_in_recovery()", "boolean"),
    ] {
        let (name, arguments) = head.split_once('(').unwrap();
        let count = if arguments == ")" { 0 } else { arguments.split(',').count() };
        let given: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
        let result = format!("pg_catalog.{name}({})", given.join(", "));
        all.push(function(schema, &format!("{head} RETURNS {kind}"), does, &result));
    }
    all.join(";\n")
}

/// Types in `schema` with names of the server's own, and a cast from text.
pub fn types(schema: &str, does: &str) -> String {
    let check = function(schema, "is_right() RETURNS boolean", does, "true");
    let types = ["text", "name", "oid", "regclass"]
        .map(|name| format!("CREATE DOMAIN {schema}.{name} AS pg_catalog.{name} CHECK ({schema}.is_right())"));
    let cast = function(schema, &format!("odd(varchar) RETURNS {schema}.odd"), does, "ROW($1)");
    format!(
        "{check}; {}; CREATE TYPE {schema}.odd AS (what pg_catalog.text); {cast};
         CREATE CAST (varchar AS {schema}.odd) WITH FUNCTION {schema}.odd(varchar) AS IMPLICIT",
        types.join("; ")
    )
}

/// Views in `schema` with names of the server's own tables.
pub fn views(schema: &str, does: &str) -> String {
    let views = ["pg_class", "pg_namespace", "pg_database", "pg_trigger", "pg_roles"].map(|name| {
        format!(
            "CREATE VIEW {schema}.{name} AS SELECT * FROM pg_catalog.{name} WHERE {schema}.is_seen();
             GRANT SELECT ON {schema}.{name} TO public"
        )
    });
    format!("{}; {}", function(schema, "is_seen() RETURNS boolean", does, "true"), views.join("; "))
}

/// A table of locks in `schema` as dlock makes it, with a trigger.
pub fn trap(schema: &str, does: &str) -> String {
    format!(
        "CREATE TABLE {schema}.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL,
           locked_by varchar(255) NOT NULL);
         {};
         CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON {schema}.shedlock FOR EACH ROW EXECUTE FUNCTION {schema}.trap();
         GRANT ALL ON {schema}.shedlock TO public",
        function(schema, "trap() RETURNS trigger", does, "coalesce(NEW, OLD)")
    )
}
