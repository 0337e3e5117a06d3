package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// seed makes a run repeatable: LATEEN_WIRE_SEED, or a new one that a failure names.
func seed(t *testing.T) uint64 {
	t.Helper()
	value := rand.Uint64()
	if given := os.Getenv("LATEEN_WIRE_SEED"); given != "" {
		parsed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		value = parsed
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with LATEEN_WIRE_SEED=%d", value)
		}
	})
	return value
}

// plan is what one stream does; the model of an echo says what must come of it.
type plan struct {
	chunks [][]byte
	// lockstep waits for each chunk's echo before the next is sent.
	lockstep bool
	// cancel gives the stream up after so many chunks; -1 ends it in order.
	cancel int
}

func newPlan(random *rand.Rand) plan {
	p := plan{lockstep: random.IntN(2) == 0, cancel: -1}
	for range random.IntN(6) {
		sizes := []int{1, 9, 255, 4096, 16384, 16385, 65535, 70000, 300000}
		chunk := make([]byte, sizes[random.IntN(len(sizes))])
		for i := range chunk {
			chunk[i] = byte(random.Uint32())
		}
		p.chunks = append(p.chunks, chunk)
	}
	if random.IntN(4) == 0 {
		p.cancel = random.IntN(len(p.chunks) + 1)
	}
	return p
}

// run plays the plan against an echo and compares with what an echo is.
func (p plan) run(ctx context.Context, conn *http2.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, writer := io.Pipe()
	defer writer.Close()
	request := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Host: "echo.test:80"}, Host: "echo.test:80", Header: http.Header{}, Body: reader,
	}
	response, err := conn.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	whole := bytes.Join(p.chunks, nil)
	if p.lockstep {
		for i, chunk := range p.chunks {
			if i == p.cancel {
				return nil
			}
			// A chunk may be larger than the windows: it is written while its echo is read.
			written := make(chan error, 1)
			go func() { _, err := writer.Write(chunk); written <- err }()
			got := make([]byte, len(chunk))
			if _, err := io.ReadFull(response.Body, got); err != nil {
				return fmt.Errorf("chunk %d: %w", i, err)
			}
			if err := <-written; err != nil {
				return fmt.Errorf("write chunk %d: %w", i, err)
			}
			if !bytes.Equal(got, chunk) {
				return fmt.Errorf("chunk %d came back changed", i)
			}
		}
		if p.cancel >= 0 {
			return nil
		}
		writer.Close()
		if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
			return fmt.Errorf("after the end: %d bytes, %w", len(rest), err)
		}
		return nil
	}
	written := make(chan error, 1)
	go func() {
		for i, chunk := range p.chunks {
			if i == p.cancel {
				break
			}
			if _, err := writer.Write(chunk); err != nil {
				written <- err
				return
			}
		}
		if p.cancel >= 0 {
			// A context's end would not be noticed while the body is read: this resets the stream.
			writer.CloseWithError(context.Canceled)
		} else {
			writer.Close()
		}
		written <- nil
	}()
	got, err := io.ReadAll(response.Body)
	if p.cancel >= 0 {
		// Whatever came is the beginning of what went.
		if !bytes.HasPrefix(whole, got) {
			return fmt.Errorf("%d bytes came back changed", len(got))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", len(got), len(whole), err)
	}
	if !bytes.Equal(got, whole) {
		return fmt.Errorf("%d bytes came back for %d, or changed", len(got), len(whole))
	}
	return <-written
}

func TestServerAgreesWithGoOnRandomStreams(t *testing.T) {
	value := seed(t)
	random := rand.New(rand.NewPCG(value, 1))
	ca, to := world(t)
	deadline := time.Now().Add(4 * time.Second)
	for round := 0; round < 20 && time.Now().Before(deadline); round++ {
		conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var all sync.WaitGroup
		for number := range 1 + random.IntN(30) {
			p := newPlan(random)
			all.Go(func() {
				if err := p.run(ctx, conn); err != nil {
					t.Errorf("round %d stream %d: %d chunks, lockstep %v, cancel %d: %v", round, number, len(p.chunks), p.lockstep, p.cancel, err)
				}
			})
		}
		all.Wait()
		// Whatever became of the streams, the tunnel is as good as before.
		if err := (plan{chunks: [][]byte{[]byte("still there")}, cancel: -1}).run(ctx, conn); err != nil {
			t.Errorf("round %d, the last stream: %v", round, err)
		}
		cancel()
		conn.Close()
		if t.Failed() {
			return
		}
	}
}

func TestClientAgreesWithGoOnRandomStreams(t *testing.T) {
	value := seed(t)
	random := rand.New(rand.NewPCG(value, 2))
	ca := newAuthority(t)
	own := ca.issue(client, time.Now().Add(time.Hour))
	deadline := time.Now().Add(4 * time.Second)
	for round := 0; round < 12 && time.Now().Before(deadline); round++ {
		// Windows and frames from the smallest to large ones.
		windows := []int32{1, 100, 4096, 65535, 1 << 20}
		settings := &http2.Server{
			MaxUploadBufferPerStream:     windows[random.IntN(len(windows))],
			MaxUploadBufferPerConnection: int32(65535 + random.IntN(1<<20)),
			MaxReadFrameSize:             uint32(16384 + random.IntN(1<<17)),
		}
		size := 1 + random.IntN(200_000)
		if settings.MaxUploadBufferPerStream < 4096 {
			// A byte a round trip is slow by nature.
			size = 1 + size%2000
		}
		input := make([]byte, size)
		for i := range input {
			input[i] = byte(random.Uint32())
		}
		step := 1 + random.IntN(50_000)
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			control := http.NewResponseController(w)
			control.Flush()
			buffer := make([]byte, step)
			for {
				n, err := r.Body.Read(buffer)
				w.Write(buffer[:n])
				control.Flush()
				if err != nil {
					return
				}
			}
		}
		to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), settings, handler)
		out, complaints, err := connectTo(t, own, to.address, "echo.test:80", input, server)
		if err != nil {
			t.Fatalf("round %d: %v: %s", round, err, complaints)
		}
		// The first line says who answered.
		_, body, found := bytes.Cut([]byte(out), []byte("\n"))
		if !found || !bytes.Equal(body, input) {
			t.Fatalf("round %d: window %d, %d bytes came back for %d, or changed", round, settings.MaxUploadBufferPerStream, len(body), len(input))
		}
	}
}
