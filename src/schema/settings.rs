/*!
The document of `dlock config --json`, and the meaning of its fields.
*/

use serde::Serialize;

use crate::schema::{VERSION, line};

/// The fields of the document: name, meaning.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    (
        "settings",
        "all options that a variable or a config file can set, and password, in the order of the help; see SETTINGS",
    ),
];

/// The fields of a setting: name, meaning.
pub(crate) const SETTING: &[(&str, &str)] = &[
    ("option", "the long name of the option, without the dashes"),
    (
        "value",
        "its value, a text as on the command line; the text true or false for an option without a value; null where it has none. Passwords \
         are ***, in URLs too",
    ),
    (
        "origin",
        "where the value comes from: flag, the name of a variable, a line (/etc/dlock/config.toml:3), a line of a profile \
         (/etc/dlock/config.toml:9 [profile.ci]), or default",
    ),
];

/// One setting.
#[derive(Serialize)]
pub(crate) struct Setting {
    /// The option's long name.
    pub option: String,
    /// Its value.
    pub value: Option<String>,
    /// The source of the value.
    pub origin: String,
}

#[derive(Serialize)]
struct Settings {
    v: u32,
    settings: Vec<Setting>,
}

/// The document of `dlock config`.
#[must_use]
pub(crate) fn settings(settings: Vec<Setting>) -> String {
    line(&Settings { v: VERSION, settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_word_for_word_with_every_field_explained() {
        let of = |option: &str, value: Option<&str>, origin: &str| Setting {
            option: option.to_owned(),
            value: value.map(str::to_owned),
            origin: origin.to_owned(),
        };
        let document = settings(vec![of("wait", Some("10m"), "/etc/dlock/config.toml:4"), of("user", None, "default")]);
        let expected = r#"{"v":1,"settings":[{"option":"wait","value":"10m","origin":"/etc/dlock/config.toml:4"},{"option":"user","value":null,"origin":"default"}]}"#;
        assert_eq!(document, format!("{expected}\n"));
        let value: serde_json::Value = serde_json::from_str(&document).expect("a document");
        for (value, explained) in [(&value, SETTINGS), (&value["settings"][1], SETTING)] {
            let mut names: Vec<&str> = explained.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            assert_eq!(value.as_object().expect("an object").keys().collect::<Vec<_>>(), names);
        }
    }
}
