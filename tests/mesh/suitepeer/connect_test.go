package main

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestAMessageIsReadBackAsItWasFramed(t *testing.T) {
	for _, message := range [][]byte{{}, {1, 2, 3}, bytes.Repeat([]byte{7}, 70_000)} {
		got, err := readMessage(bytes.NewReader(framed(message)))
		if err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes came back as %d: %v", len(message), len(got), err)
		}
	}
	if _, err := readMessage(bytes.NewReader([]byte("HTTP/1.1 200 OK"))); err == nil {
		t.Error("text is taken for a message")
	}
}

func TestOnlyTheFieldsOfTheAddressAreTakenOut(t *testing.T) {
	var message, want []byte
	field := func(number protowire.Number, text string, keeps bool) {
		whole := protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), text)
		message = append(message, whole...)
		if keeps {
			want = append(want, whole...)
		}
	}
	field(1, "a name", true)
	field(clientAskHost, "127.0.0.1", false)
	field(20, "a request", true)
	message = protowire.AppendVarint(protowire.AppendTag(message, clientAskPort, protowire.VarintType), 8080)
	field(15, "a header", true)
	got, err := without(message, clientAskHost, clientAskPort)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
	if port, err := number(message, clientAskPort); err != nil || port != 8080 {
		t.Errorf("port %d, %v", port, err)
	}
	if absent, err := number(message, 99); err != nil || absent != 0 {
		t.Errorf("a field that is not there is %d, %v", absent, err)
	}
	if _, err := without(message[:3]); err == nil {
		t.Error("half a message is taken for one")
	}
}
