package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages by which the Connect conformance suite talks with its clients and servers (server_compat.proto,
// client_compat.proto). A message has a length of four bytes before it.
const (
	serverAskProtocol = 1
	serverAskVersion  = 2
	serverToldHost    = 1
	serverToldPort    = 2
	clientAskHost     = 6
	clientAskPort     = 7
)

// mostMessage is the largest message that is taken, so that bytes which are no message are found out.
const mostMessage = 64 << 20

// connectServer starts a server of the suite that listens on the port of its HTTP version and its protocol, BASE + 10 × version +
// protocol, and tells the suite that it is at that port of another host.
func connectServer(ctx context.Context, host, base string, command []string) error {
	first, err := strconv.Atoi(base)
	if err != nil {
		return errUsage
	}
	asked, err := readMessage(os.Stdin)
	if err != nil {
		return fmt.Errorf("read what the suite asks for: %w", err)
	}
	protocol, err := number(asked, serverAskProtocol)
	if err != nil {
		return err
	}
	version, err := number(asked, serverAskVersion)
	if err != nil {
		return err
	}
	port := strconv.Itoa(first + 10*int(version) + int(protocol))
	server := child(ctx, append(command[:len(command):len(command)], "-bind", "0.0.0.0", "-port", port))
	server.Stdin = bytes.NewReader(framed(asked))
	said, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	// The server says where it listens once it does.
	if _, err := readMessage(said); err != nil {
		return errors.Join(fmt.Errorf("read what the server says: %w", err), server.Wait())
	}
	at, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	told := protowire.AppendTag(nil, serverToldHost, protowire.BytesType)
	told = protowire.AppendString(told, host)
	told = protowire.AppendTag(told, serverToldPort, protowire.VarintType)
	told = protowire.AppendVarint(told, at)
	if _, err := os.Stdout.Write(framed(told)); err != nil {
		return err
	}
	return server.Wait()
}

// connectClient starts a client of the suite and gives it what the suite asks for, with another host and port.
func connectClient(ctx context.Context, host, port string, command []string) error {
	at, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return errUsage
	}
	client := child(ctx, command)
	client.Stdout = os.Stdout
	asks, err := client.StdinPipe()
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	for {
		asked, err := readMessage(os.Stdin)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			asked, err = without(asked, clientAskHost, clientAskPort)
		}
		if err == nil {
			asked = protowire.AppendTag(asked, clientAskHost, protowire.BytesType)
			asked = protowire.AppendString(asked, host)
			asked = protowire.AppendTag(asked, clientAskPort, protowire.VarintType)
			asked = protowire.AppendVarint(asked, at)
			_, err = asks.Write(framed(asked))
		}
		if err != nil {
			asks.Close()
			return errors.Join(err, client.Wait())
		}
	}
	asks.Close()
	return client.Wait()
}

// child is a command that ends with this program, which waits for that: the next server takes its port.
func child(ctx context.Context, command []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

func readMessage(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > mostMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	message := make([]byte, n)
	_, err := io.ReadFull(r, message)
	return message, err
}

func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// number is a field that holds a number; 0 where the message does not have it.
func number(message []byte, wanted protowire.Number) (uint64, error) {
	var value uint64
	err := fields(message, func(field protowire.Number, kind protowire.Type, whole []byte) {
		if field == wanted && kind == protowire.VarintType {
			_, _, tag := protowire.ConsumeTag(whole)
			value, _ = protowire.ConsumeVarint(whole[tag:])
		}
	})
	return value, err
}

// without is a message less some of its fields.
func without(message []byte, unwanted ...protowire.Number) ([]byte, error) {
	var rest []byte
	err := fields(message, func(field protowire.Number, _ protowire.Type, whole []byte) {
		if !slices.Contains(unwanted, field) {
			rest = append(rest, whole...)
		}
	})
	return rest, err
}

// fields calls a function for each field with the field's bytes, its tag included.
func fields(message []byte, f func(protowire.Number, protowire.Type, []byte)) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return fmt.Errorf("the suite's message: %w", protowire.ParseError(n))
		}
		f(number, kind, message[:n])
		message = message[n:]
	}
	return nil
}
