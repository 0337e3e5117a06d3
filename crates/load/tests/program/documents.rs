//! Reports in the formats of Fortio and of spreadsheets.

use serde_json::Value;

use crate::rig::{ended, run};
use crate::service::Service;

#[test]
fn a_report_goes_to_fortio_and_to_spreadsheets() {
    let service = Service::start("");
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (fortio, csv) = (path("fortio.json"), path("runs.csv"));
    let url = service.url("/?size=10&status=503:50");
    for name in ["first", "second,\"quoted\""] {
        let load = format!("--url {url} --name {name} --qps=200 -c2 -d500ms");
        let forms = "--fortio-percentiles=50,99.99 --fortio-resolution=0.001";
        let ended = run(format!("{load} {forms} --fortio-json {fortio} --csv {csv}"));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    let result: Value = serde_json::from_slice(&std::fs::read(&fortio).unwrap()).unwrap();
    let (all, failed) = (
        &result["DurationHistogram"],
        &result["ErrorsDurationHistogram"],
    );
    assert_eq!(result["Labels"], "second,\"quoted\"");
    assert_eq!(all["Count"], 100);
    assert_eq!(all["Percentiles"][1]["Percentile"], 99.99);
    assert_eq!(failed["Count"], result["RetCodes"]["503"]);
    assert_eq!(result["URL"], url);

    let lines = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = lines.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 3, "one head, two runs: {lines:?}");
    assert!(lines[0].starts_with("started_unix_ms,name,round,url,"));
    assert!(lines[0].contains(",response_p99_ms,"));
    assert!(lines[1].contains(",first,1,http://"));
    assert!(lines[2].contains(",\"second,\"\"quoted\"\"\",1,"));
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());

    std::fs::write(&csv, "something,else\r\n").unwrap();
    ended(format!("run --url {url} -d100ms --warmup=0 --csv {csv}")).refused(1, "other columns");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "something,else\r\n");
}
