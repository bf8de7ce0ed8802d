//! Links dlock so that it starts fast: libgcc goes into the binary, because as a library of its own it is found, mapped and
//! relocated at each start; and what the tests start ten thousand times is not relocated at all.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu" {
        // The standard library asks for `libgcc_s`. This linker script is found first, and names the static library instead.
        let directory = PathBuf::from(variable("OUT_DIR"));
        std::fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")?;
        println!("cargo::rustc-link-search=native={}", directory.display());
        if variable("PROFILE") == "debug" {
            println!("cargo::rustc-link-arg-bins=-no-pie");
        }
    }
    Ok(())
}
