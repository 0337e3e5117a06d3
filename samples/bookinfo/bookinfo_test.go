// Package bookinfo_test starts the services of Bookinfo on loopback ports and asks them what their
// users would. It knows nothing of meshes: the services must be right before anything is put between
// them.
package bookinfo_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// service is one of the four, in a process of its own.
type service struct {
	port string
	url  string
	log  *log
}

// log collects what a process writes while the test reads along.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var (
	details     = []string{"ruby", "details/details.rb"}
	ratings     = []string{"node", "ratings/ratings.js"}
	reviews     = []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx48m", "-XX:-UsePerfData", "reviews/Reviews.java"}
	productpage = []string{"python3", "productpage/productpage.py"}
)

// start runs a service with these settings until the test ends, and then expects it to end well.
func start(t *testing.T, command []string, settings ...string) service {
	t.Helper()
	need(t, command[0])
	port := freePort(t)
	process := exec.Command(command[0], command[1:]...)
	process.Env = append(os.Environ(), append(settings, "PORT="+port)...)
	log := &log{}
	process.Stderr = log
	// A group of its own, so that workers cannot outlive a failed test.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatalf("start %v: %v", command, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	t.Cleanup(func() {
		defer syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
		if err := process.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%v ended by itself: %v\n%s", command, err, log)
			return
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v after SIGTERM: %v\n%s", command, err, log)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v does not end on SIGTERM", command)
		}
	})
	s := service{port: port, url: "http://127.0.0.1:" + port, log: log}
	deadline := time.Now().Add(60 * time.Second)
	for {
		response, err := http.Get(s.url + "/health")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%v ended: %v\n%s", command, err, log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v is not healthy after a minute: %v", command, err)
		}
	}
}

// need fails the test when a program is missing, unless LATEEN_WITHOUT says that it may be.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	for _, missing := range strings.Split(os.Getenv("LATEEN_WITHOUT"), ",") {
		if strings.TrimSpace(missing) == program {
			t.Skipf("SKIPPED: %s is missing and LATEEN_WITHOUT allows that", program)
		}
	}
	t.Fatalf("%s is not installed; install it (for ruby also ruby-webrick), or set LATEEN_WITHOUT=%s to go without", program, program)
}

// freePort is a port that is free, and stays so until a service has started: it is none of those that the kernel gives to whoever asks.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(20000 + rand.IntN(12000))
		if listener, err := net.Listen("tcp", ":"+port); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// at points the settings of a caller at a service.
func at(name string, port string) []string {
	return []string{name + "_HOSTNAME=127.0.0.1", name + "_SERVICE_PORT=" + port}
}

func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return do(t, request)
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return do(t, request)
}

func do(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	// Redirects are answers here, not detours.
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return content
}

// expect compares an answer's status and looks for a text in its body.
func expect(t *testing.T, what string, status int, body string, wantStatus int, want ...string) {
	t.Helper()
	if status != wantStatus {
		t.Errorf("%s: status %d, want %d: %s", what, status, wantStatus, body)
	}
	for _, text := range want {
		if !strings.Contains(body, text) {
			t.Errorf("%s: %q is missing from %s", what, text, body)
		}
	}
}

// exchange sends one request on a connection and returns what each read of the answer gave.
func exchange(connection net.Conn, path string) (reads [][]byte, took time.Duration, err error) {
	begin := time.Now()
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: details:9080\r\nUser-Agent: test\r\n\r\n", path); err != nil {
		return nil, 0, err
	}
	connection.SetReadDeadline(begin.Add(20 * time.Second))
	for {
		piece := make([]byte, 4096)
		n, err := connection.Read(piece)
		if err != nil {
			return nil, 0, err
		}
		reads = append(reads, piece[:n])
		whole := string(joined(reads))
		if head, body, ok := strings.Cut(whole, "\r\n\r\n"); ok && strings.Contains(head, fmt.Sprintf("Content-Length: %d", len(body))) {
			return reads, time.Since(begin), nil
		}
	}
}

func joined(pieces [][]byte) []byte {
	var all []byte
	for _, piece := range pieces {
		all = append(all, piece...)
	}
	return all
}
