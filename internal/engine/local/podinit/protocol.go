// Package podinit is the first process of every local pod and the engine's way to talk to it: it gives the pod its view of
// the file system, starts what it is told to as the pod's user without privileges, and ends everything when it ends.
// It decides nothing: restarts, probes and order are the engine's.
package podinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Setup is the pod's view of the machine.
type Setup struct {
	Hostname   string            `json:"hostname"`
	Files      map[string]string `json:"files"` // file to show instead: path in the pod -> source
	Dirs       map[string]string `json:"dirs"`  // read-only directories below Hidden: path in the pod -> source
	Hidden     string            `json:"hidden"`
	Scratch    []string          `json:"scratch"` // directories that the pod gets empty and for itself, if they exist
	ScratchMax int64             `json:"scratchMax"`
}

// Command is one process to start.
type Command struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	UID  int      `json:"uid"` // also its only group
	TTY  bool     `json:"tty"` // file descriptor 0 becomes its controlling terminal
}

// request is what the engine sends; one of the fields besides ID is set. A start carries three file descriptors.
type request struct {
	ID     int      `json:"id"`
	Setup  *Setup   `json:"setup,omitempty"`
	Start  *Command `json:"start,omitempty"`
	Signal int      `json:"signal,omitempty"`
}

// reply is what the pod's init answers. A start is answered by PID or Error and, after a PID, by Exited later.
type reply struct {
	ID    int    `json:"id"`
	PID   int    `json:"pid,omitempty"` // in the pod's pid namespace
	Error string `json:"error,omitempty"`
	// NoCommand reports that the error is that of a command that does not exist.
	NoCommand bool `json:"noCommand,omitempty"`
	Exited    bool `json:"exited,omitempty"`
	Code      int  `json:"code,omitempty"`
	Signal    int  `json:"signal,omitempty"`
}

// NoCommandError is the error of a command that does not exist.
type NoCommandError struct{ message string }

func (e *NoCommandError) Error() string { return e.message }

// maxMessage bounds a message in bytes; environments are the only large thing in one.
const maxMessage = 128 << 10

// filesPerStart is how many file descriptors a start carries: stdin, stdout, stderr.
const filesPerStart = 3

func send(c *net.UnixConn, m any, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("message of %d bytes to the pod's init is over %d; shorten command or environment", len(b), maxMessage)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, oob, nil)
	return err
}

// receive reads one message into m and returns the file descriptors that came with it. buf must have room for maxMessage.
func receive(c *net.UnixConn, buf []byte, m any) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*filesPerStart))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	files, err := parseRights(oob[:oobn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("message between engine and pod init was cut off")
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil {
		err = json.Unmarshal(buf[:n], m)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
