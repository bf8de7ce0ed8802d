//! What the files for checks of a backend may use.

/// As [`MAY_USE`](super::MAY_USE).
pub(super) const CHECKS: &[(&str, &[&str])] = &[
    (
        "command/check",
        &[
            "backend",
            "clock",
            "command::about",
            "command::check",
            "command::session",
            "exit",
            "key",
            "lease",
            "lock",
            "output",
            "report",
            "schema",
            "settings",
            "supervise",
        ],
    ),
    ("report/picture/checked.rs", &["backend::contract::probing", "report::picture"]),
    ("schema/checked.rs", &["backend::contract::probing", "schema"]),
];
