//! Refuses by name what Lowtide does not run on, before the compiler would with a page of errors.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| var(name).is_ok_and(|found| found == wanted);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_POINTER_WIDTH", "64") {
        let target = var("TARGET").unwrap_or_default();
        println!(
            "cargo::error=Lowtide runs on 64-bit Linux, on x86-64 and aarch64: it cannot be built for {target} \
             (hint: on Windows use WSL 2, on macOS a Linux container or virtual machine)"
        );
    }
}
