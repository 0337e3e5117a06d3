// Package files owns the directory source: it turns a tree of YAML and JSON files into typed objects and reports what is wrong with them.
// It does not know what the objects mean to the mesh or where they go.
package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/spelling"
)

// Object is one decoded object; see model.Object.
type Object = model.Object

// DefaultNamespace is where a namespaced object goes that names no namespace.
const DefaultNamespace = "default"

// MaxFileSize bounds what Decode reads, in bytes: a manifest larger than this is a mistake.
const MaxFileSize = 16 << 20

// Decode reads every document of a YAML or JSON stream. file is only used in messages. An object is returned if and only if
// nothing with severity Refused was found in it; documents are judged one by one, so a bad one costs none of the others.
func Decode(file string, data []byte) ([]Object, []Problem) {
	if len(data) > MaxFileSize {
		return nil, []Problem{{File: file, Message: fmt.Sprintf("the file has %d bytes, more than the %d that are read", len(data), MaxFileSize),
			Fix: "split it"}}
	}
	var objects []Object
	var problems []Problem
	for _, doc := range split(data) {
		o, p := decodeDocument(file, doc)
		objects = append(objects, o...)
		problems = append(problems, p...)
	}
	// YAML knows line breaks that editors do not show (NEL, LS, a lone CR), and its parsers now and then count one too many:
	// no place is named that the file does not have.
	last := 1 + bytes.Count(data, []byte{'\n'})
	for i := range objects {
		objects[i].Line = min(objects[i].Line, last)
	}
	for i := range problems {
		problems[i].Line = min(problems[i].Line, last)
		problems[i] = problems[i].clipped()
	}
	return objects, problems
}

// fault is a problem inside one object, still without file and line.
type fault struct {
	severity Severity
	field    string
	message  string
	fix      string
	more     int // how many others like it there are that are not put into words
}

// decodeDocument reads one document: one object, or a List of them.
func decodeDocument(file string, doc document) ([]Object, []Problem) {
	refuse := func(line int, message, fix string) ([]Object, []Problem) {
		return nil, []Problem{{File: file, Line: line, Message: message, Fix: fix}}
	}
	var root yamlv3.Node
	dec := yamlv3.NewDecoder(bytes.NewReader(doc.text))
	if err := dec.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		line, message := yamlError(err, doc.line)
		return refuse(line, message, "correct the YAML")
	}
	if err := dec.Decode(new(yamlv3.Node)); !errors.Is(err, io.EOF) {
		return refuse(doc.line, "more than one document without a '---' line between them", "put a line '---' between documents")
	}
	start := doc.line + max(root.Line-1, 0)
	if len(root.Content) > 0 {
		start = doc.line + root.Content[0].Line - 1
	}
	raw, err := yaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		line, message := yamlError(err, doc.line)
		return refuse(line, message, "correct the YAML")
	}
	return decodeJSON(file, &root, doc.line, start, "", raw)
}

// decodeJSON decodes one object from its JSON. root and path locate it in the YAML tree, for line numbers.
func decodeJSON(file string, root *yamlv3.Node, docLine, start int, path string, raw []byte) ([]Object, []Problem) {
	at := func(field string) int { return lineOf(root, docLine, start, join(path, field)) }
	problem := func(object string, f fault) Problem {
		return Problem{Severity: f.severity, File: file, Line: at(f.field), Object: object, Field: f.field, Message: f.message, Fix: f.fix}
	}

	var head struct {
		APIVersion any               `json:"apiVersion"`
		Kind       any               `json:"kind"`
		Metadata   any               `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil || len(raw) == 0 || raw[0] != '{' {
		return nil, []Problem{problem("", fault{message: "not an object with apiVersion, kind and metadata", fix: "write a Kubernetes object here"})}
	}
	apiVersion, _ := head.APIVersion.(string)
	kindName, _ := head.Kind.(string)
	if apiVersion == "" || kindName == "" {
		missing := "kind"
		if apiVersion == "" {
			missing = "apiVersion"
		}
		return nil, []Problem{problem("", fault{field: missing, message: missing + " is missing", fix: "every object needs apiVersion and kind"})}
	}
	if kindName == "List" && apiVersion == "v1" {
		var objects []Object
		var problems []Problem
		for i, item := range head.Items {
			itemPath := join(path, fmt.Sprintf("items[%d]", i))
			o, p := decodeJSON(file, root, docLine, lineOf(root, docLine, start, itemPath), itemPath, item)
			objects, problems = append(objects, o...), append(problems, p...)
		}
		return objects, problems
	}

	name, namespace := identify(head.Metadata)
	group, version := splitAPIVersion(apiVersion)
	k, known := kinds[groupKind{group, kindName}]
	if !known {
		p := problem(describe(kindName, namespace, name), unknownKind(group, kindName, apiVersion))
		// Whatever this was meant to be, it was never taken: it stands for no live object.
		p.key = model.Key{Group: group, Kind: kindName, Namespace: namespace, Name: name}
		return nil, []Problem{p}
	}
	switch {
	case k.cluster:
		namespace = "" // if one is given, that is refused below
	case namespace == "":
		namespace = DefaultNamespace
	}
	_, given := identify(head.Metadata)
	key := model.Key{Group: group, Kind: kindName, Namespace: namespace, Name: name}
	var faults []fault
	if !slices.Contains(k.versions, version) {
		faults = append(faults, fault{field: "apiVersion", message: fmt.Sprintf("version %.100q of %s is not known", version, kindName),
			fix: "use apiVersion " + k.apiVersion()})
	}
	value, f := k.decode(raw)
	faults = append(faults, f...)
	if value != nil && k.cluster && value.GetNamespace() != "" {
		faults = append(faults, fault{field: "metadata.namespace", message: kindName + " is cluster-scoped and has no namespace", fix: "remove the field"})
	}
	if value != nil {
		value.SetNamespace(namespace)
		faults = append(faults, checkMetadata(value)...)
		if k.check != nil && !refused(faults) {
			faults = append(faults, k.check(value)...)
		}
	}
	problems := make([]Problem, 0, len(faults))
	read := k.reads != nil && value != nil && k.reads(value)
	if k.support == model.Ineffective && !read && !refused(faults) {
		faults = append(faults, fault{severity: Warning, message: "stored but ignored: " + k.reason})
	}
	for _, f := range fewest(faults) {
		p := problem(key.String(), f)
		if name != "" {
			p.key = key // an object that lost its name may be any of the file's
			p.bare, p.start = given == "" && !k.cluster, start
		}
		problems = append(problems, p)
	}
	if refused(faults) {
		return nil, problems
	}
	o := Object{Key: key, APIVersion: apiVersion, JSON: raw, File: file, Line: start, Support: k.support, Reason: k.reason}
	if read {
		o.Support, o.Reason = model.Implemented, ""
	}
	if k.plain != nil || k.istio != nil {
		if o.Value = value; k.admit != nil {
			k.admit(value)
		}
	}
	return []Object{o}, problems
}

func refused(faults []fault) bool {
	return slices.ContainsFunc(faults, func(f fault) bool { return f.severity == Refused })
}

// metadataOf is the metadata of an object's JSON.
func metadataOf(raw []byte) any {
	var head struct {
		Metadata any `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &head) // it was decoded before
	return head.Metadata
}

// identify reads name and namespace out of metadata that may still turn out to be wrong.
func identify(metadata any) (name, namespace string) {
	m, _ := metadata.(map[string]any)
	name, _ = m["name"].(string)
	namespace, _ = m["namespace"].(string)
	return name, namespace
}

func describe(kind, namespace, name string) string {
	return strings.TrimRight(model.Key{Kind: kind, Namespace: namespace, Name: name}.String(), " /")
}

func unknownKind(group, kindName, apiVersion string) fault {
	for _, k := range sortedKinds() {
		if k.name == kindName {
			return fault{field: "apiVersion", message: fmt.Sprintf("there is no kind %s in %s", kindName, apiVersion), fix: "use apiVersion " + k.apiVersion()}
		}
	}
	var names []string
	for _, k := range sortedKinds() {
		names = append(names, k.name)
	}
	if near := spelling.Nearest(kindName, names); near != "" {
		return fault{field: "kind", message: fmt.Sprintf("unknown kind %s", kindName), fix: fmt.Sprintf("did you mean %s?", near)}
	}
	return fault{field: "kind", message: fmt.Sprintf("unknown kind %s of %s", kindName, apiVersion), fix: "remove the document; nothing here acts on it"}
}

func sortedKinds() []kind {
	all := make([]kind, 0, len(kinds))
	for _, k := range kinds {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kind) int {
		return strings.Compare(a.group+"/"+a.name, b.group+"/"+b.name)
	})
	return all
}

// envelope is the part that all custom resources have in common; spec is decoded apart.
type envelope struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`
}

// loose reads the metadata of a kind whose other fields nobody here understands.
type loose struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// decode fills an object of kind k. The object is nil if nothing of it can be used for further checks.
func (k kind) decode(raw []byte) (metav1.Object, []fault) {
	switch {
	case k.plain != nil:
		o := k.plain()
		return o, strict(raw, o)
	case k.istio != nil:
		o, spec := k.istio()
		var e envelope
		faults := strict(raw, &e)
		if len(e.Spec) > 0 && !bytes.Equal(e.Spec, []byte("null")) {
			faults = append(faults, strictProto(e.Spec, spec)...)
		}
		if k.written != nil && !refused(faults) {
			faults = append(faults, k.written(e.Spec)...)
		}
		copyMeta(&e.ObjectMeta, o)
		return o, faults
	default:
		var l loose
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &l); err != nil {
			return nil, []fault{jsonFault(raw, err)}
		}
		return &l, nil
	}
}

// copyMeta moves metadata into an Istio object, whose own JSON decoder is too lenient to be used.
func copyMeta(from *metav1.ObjectMeta, to metav1.Object) {
	to.SetName(from.Name)
	to.SetGenerateName(from.GenerateName)
	to.SetNamespace(from.Namespace)
	to.SetUID(from.UID)
	to.SetResourceVersion(from.ResourceVersion)
	to.SetGeneration(from.Generation)
	to.SetCreationTimestamp(from.CreationTimestamp)
	to.SetDeletionTimestamp(from.DeletionTimestamp)
	to.SetLabels(from.Labels)
	to.SetAnnotations(from.Annotations)
	to.SetOwnerReferences(from.OwnerReferences)
	to.SetFinalizers(from.Finalizers)
}

var strictError = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)

// strict decodes JSON into a Kubernetes type and refuses what the type does not have.
func strict(raw []byte, into any) []fault {
	strictErrs, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return []fault{jsonFault(raw, err)}
	}
	var faults []fault
	for _, e := range strictErrs {
		m := strictError.FindStringSubmatch(e.Error())
		if m == nil {
			faults = append(faults, fault{message: e.Error(), fix: "correct the field"})
			continue
		}
		fix := "remove the field"
		if near := spelling.Nearest(lastName(m[2]), structFields(into, m[2])); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		faults = append(faults, fault{field: m[2], message: m[1] + " field", fix: fix})
	}
	return faults
}

func jsonFault(raw []byte, err error) fault {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		offset := typeErr.Offset
		if typeErr.Value == "array" || typeErr.Value == "object" {
			offset-- // the decoder stands behind the bracket already
		}
		field := pathAt(raw, offset)
		if field == "" {
			field = typeErr.Field
		}
		return fault{field: field, message: fmt.Sprintf("%s where %s belongs", typeErr.Value, goTypeName(typeErr.Type)), fix: "correct the value; text that looks like a number or a boolean needs quotes"}
	}
	return fault{message: strings.TrimPrefix(err.Error(), "json: "), fix: "correct the value"}
}

var protoError = regexp.MustCompile(`\(line (\d+):(\d+)\): (.*)$`)

// strictProto decodes the spec of an Istio object and refuses what the message does not have.
func strictProto(spec []byte, into proto.Message) []fault {
	err := protojson.UnmarshalOptions{DiscardUnknown: false}.Unmarshal(spec, into)
	if err == nil {
		return nil
	}
	m := protoError.FindStringSubmatch(err.Error())
	if m == nil {
		// protojson varies the space after its prefix on purpose.
		message := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
		return []fault{{field: "spec", message: message, fix: "correct the value"}}
	}
	column, convErr := strconv.Atoi(m[2])
	if convErr != nil {
		column = 1
	}
	field := join("spec", pathAt(spec, byteOffset(spec, column)))
	return []fault{{field: field, message: m[3], fix: protoFix(into.ProtoReflect().Descriptor(), strings.TrimPrefix(field, "spec."), m[3])}}
}

var yamlLine = regexp.MustCompile(`line (\d+): ?`)

// yamlError takes the line out of a YAML library's message and makes it one of the file.
func yamlError(err error, docLine int) (line int, message string) {
	message = err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		message = strings.TrimPrefix(message, prefix)
	}
	line = docLine
	if m := yamlLine.FindStringSubmatchIndex(message); m != nil {
		if n, convErr := strconv.Atoi(message[m[2]:m[3]]); convErr == nil {
			line = docLine + n - 1
		}
		message = message[:m[0]] + message[m[1]:]
	}
	message, _, _ = strings.Cut(message, "\n")
	return line, message
}
