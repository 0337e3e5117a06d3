//! Any bytes as the query of a request to the echo service: limits hold, and no field smuggles a line.
#![no_main]

use std::time::Duration;

use lateen_load::serve::params::{Limits, Params};
use libfuzzer_sys::fuzz_target;
use rand::SeedableRng;
use rand::rngs::SmallRng;

fuzz_target!(|data: &[u8]| {
    let limits = Limits { size: 1000, delay: Duration::from_millis(5) };
    let target = String::from_utf8_lossy(data);
    let parse = || Params::parse(&target, &limits, &mut SmallRng::seed_from_u64(1));
    let params = parse();
    assert_eq!(params, parse(), "chance alone makes a difference");
    assert!(params.size.unwrap_or(0) <= limits.size && params.delay <= limits.delay);
    assert!((1..=64).contains(&params.writes));
    for (name, value) in &params.headers {
        assert!(lateen_http::FieldName::new(name.as_str()).is_some());
        assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)));
    }
});
