package zds

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	zdspb "lateen.dev/lateen/internal/gen/zds"
)

// maxMessage is the longest message either side sends; an unmodified ztunnel reads no more than this.
const maxMessage = 1024

var errTooLong = fmt.Errorf("message exceeds %d bytes", maxMessage)

// parseHello reads what a proxy says first. An unknown version is refused: the rest could not be understood.
func parseHello(b []byte) error {
	var hello zdspb.ZdsHello
	if err := proto.Unmarshal(b, &hello); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	if hello.Version != zdspb.Version_V1 {
		return fmt.Errorf("the proxy speaks ZDS version %d, this agent speaks version 1; run versions that fit together", hello.Version)
	}
	return nil
}

// Refusal is a proxy's answer that it did not do what it was asked.
type Refusal struct {
	Reason string
}

func (r *Refusal) Error() string { return "the node proxy refused: " + r.Reason }

// parseResponse reads the answer to a request: nil, a *Refusal, or an error that ends the connection, because an
// unreadable answer cannot be matched to a request.
func parseResponse(b []byte) (*Refusal, error) {
	var response zdspb.WorkloadResponse
	if err := proto.Unmarshal(b, &response); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	ack := response.GetAck()
	if ack == nil {
		return nil, errors.New("read answer: it is no acknowledgement")
	}
	if ack.Error != "" {
		return &Refusal{Reason: ack.Error}, nil
	}
	return nil, nil
}

func encode(m *zdspb.WorkloadRequest) ([]byte, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > maxMessage {
		return nil, errTooLong
	}
	return b, nil
}

func addRequest(w Workload) *zdspb.WorkloadRequest {
	if w.NetNS == nil {
		return &zdspb.WorkloadRequest{Payload: &zdspb.WorkloadRequest_Keep{Keep: &zdspb.KeepWorkload{Uid: w.UID}}}
	}
	return &zdspb.WorkloadRequest{Payload: &zdspb.WorkloadRequest_Add{Add: &zdspb.AddWorkload{
		Uid: w.UID,
		WorkloadInfo: &zdspb.WorkloadInfo{
			Name: w.Name, Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
		},
	}}}
}

func deleteRequest(uid string) *zdspb.WorkloadRequest {
	return &zdspb.WorkloadRequest{Payload: &zdspb.WorkloadRequest_Del{Del: &zdspb.DelWorkload{Uid: uid}}}
}

func snapshotSentRequest() *zdspb.WorkloadRequest {
	return &zdspb.WorkloadRequest{Payload: &zdspb.WorkloadRequest_SnapshotSent{SnapshotSent: &zdspb.SnapshotSent{}}}
}
