//! Reports in the formats of Fortio and of spreadsheets.

use super::*;

#[test]
fn a_report_goes_to_fortio_and_to_spreadsheets() {
    let service = Service::start();
    let (fortio, csv) = (scratch("fortio.json"), scratch("runs.csv"));
    let _ = std::fs::remove_file(&csv);
    let url = format!("http://{}/?size=10&status=503:50", service.address);
    for name in ["first", "second, \"quoted\""] {
        let status = program()
            .args([
                "run",
                "--url",
                &url,
                "--qps=200",
                "-c2",
                "-d500ms",
                "--warmup=0",
            ])
            .args([
                "--name",
                name,
                "--fortio-percentiles=50,99.99",
                "--fortio-resolution=0.001",
            ])
            .arg("--fortio-json")
            .arg(&fortio)
            .arg("--csv")
            .arg(&csv)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }
    let result: Value = serde_json::from_slice(&std::fs::read(&fortio).unwrap()).unwrap();
    assert_eq!(result["Labels"], "second, \"quoted\"");
    assert_eq!(result["DurationHistogram"]["Count"], 100);
    assert_eq!(
        result["DurationHistogram"]["Percentiles"][1]["Percentile"],
        99.99
    );
    assert_eq!(
        result["ErrorsDurationHistogram"]["Count"],
        result["RetCodes"]["503"]
    );
    assert_eq!(result["URL"], url);

    let lines = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = lines.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 3, "one head, two runs: {lines:?}");
    assert!(
        lines[0].starts_with("started_unix_ms,name,round,url,")
            && lines[0].contains(",response_p99_ms,")
    );
    assert!(
        lines[1].contains(",first,1,http://")
            && lines[2].contains(",\"second, \"\"quoted\"\"\",1,")
    );
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());

    std::fs::write(&csv, "something,else\r\n").unwrap();
    let output = program()
        .args(["run", "--url", &url, "-d100ms", "--warmup=0", "--csv"])
        .arg(&csv)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("other columns"));
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "something,else\r\n");
}
