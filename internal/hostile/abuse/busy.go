package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Busy is a client that means no harm, and sends each request when the one before is answered, on one connection. It returns how many
// were answered until stop was closed. An answer other than 200 is an error, and so is none within the patience.
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
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, "GET /polite HTTP/1.1\r\nHost: "+cases.Host+"\r\n\r\n"); err != nil {
			return answered, err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return answered, err
		}
		if answer.StatusCode != http.StatusOK {
			return answered, fmt.Errorf("it was answered by %s", answer.Status)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return answered, err
		}
		answered++
	}
}
