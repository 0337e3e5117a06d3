// Package resourcelog owns what the control plane has to say: one append-only log per resource type, in which each resource stands once, encoded once.
// It does not know what the resources mean or how they travel; a reader is a position in the log and nothing more.
package resourcelog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// resourcesField is the number of DeltaDiscoveryResponse.resources.
const resourcesField = 2

// Resource is one encoded resource. It is immutable: any number of responses share its bytes.
type Resource struct {
	Name string
	// Version is a hash of the content, so that it stays the same over restarts and replicas.
	Version string
	// Aliases are further names by which a client may ask for the resource.
	Aliases []string
	// Parents are resources whose subscribers need this one as well: a service's workloads.
	Parents []string
	// Broad says that the resource holds for others that do not name it, as a policy of a namespace does. What comes in its place
	// and must be named can hold only once those others name it.
	Broad bool
	// Readers are the identities ("namespace/serviceaccount") of the callers that the resource is for, if its kind has such an audience.
	Readers []string
	// Node is the node whose proxy needs the resource without asking for it: it serves the workload. Empty: none does.
	Node string
	// Sources are the objects that the resource was made of, most of all those whose authors must hear when a client refuses it.
	Sources []Source
	frame   []byte
}

// Source names an object that a resource was made of.
type Source struct {
	Group, Kind, Namespace, Name string
}

// Encode makes a resource of a message, with what its kind derives from the message.
func (k *Kind) Encode(name string, aliases, parents []string, message proto.Message) (*Resource, error) {
	r, err := Encode(k.TypeURL, name, aliases, parents, message)
	if err == nil && k.Annotate != nil {
		k.Annotate(r, message)
	}
	return r, err
}

// Encode makes a resource of a message. typeURL must be the type's full URL.
func Encode(typeURL, name string, aliases, parents []string, message proto.Message) (*Resource, error) {
	// Maps are part of these messages: without a fixed order equal content would hash differently.
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", typeURL, name, err)
	}
	sum := sha256.Sum256(content)
	version := hex.EncodeToString(sum[:8])
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&discovery.Resource{
		Name:     name,
		Version:  version,
		Aliases:  aliases,
		Resource: &anypb.Any{TypeUrl: typeURL, Value: content},
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", typeURL, name, err)
	}
	frame := make([]byte, 0, protowire.SizeTag(resourcesField)+protowire.SizeBytes(len(body)))
	frame = protowire.AppendTag(frame, resourcesField, protowire.BytesType)
	frame = protowire.AppendBytes(frame, body)
	return &Resource{Name: name, Version: version, Aliases: aliases, Parents: parents, frame: frame}, nil
}

// Frame is the resource as one field of an encoded DeltaDiscoveryResponse. The caller must not change it.
func (r *Resource) Frame() []byte { return r.frame }

// Decode reads the resource back, for people who look into the control plane.
func (r *Resource) Decode() (*discovery.Resource, error) {
	_, _, n := protowire.ConsumeTag(r.frame)
	if n < 0 {
		return nil, fmt.Errorf("decode %s: %w", r.Name, protowire.ParseError(n))
	}
	body, m := protowire.ConsumeBytes(r.frame[n:])
	if m < 0 {
		return nil, fmt.Errorf("decode %s: %w", r.Name, protowire.ParseError(m))
	}
	out := &discovery.Resource{}
	if err := proto.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("decode %s: %w", r.Name, err)
	}
	return out, nil
}
