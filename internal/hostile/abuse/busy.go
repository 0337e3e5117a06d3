package abuse

import (
	"bufio"
	"io"
	"net/http"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Busy is a client that means no harm, and sends each request when the one before is answered, on one connection. It returns how many
// were answered until stop was closed.
func Busy(dial Dial, stop <-chan struct{}) (answered int, err error) {
	conn, err := dial()
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	for {
		select {
		case <-stop:
			return answered, nil
		default:
		}
		if _, err := io.WriteString(conn, "GET /polite HTTP/1.1\r\nHost: "+cases.Host+"\r\n\r\n"); err != nil {
			return answered, err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return answered, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return answered, err
		}
		answered++
	}
}
