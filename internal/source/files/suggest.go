package files

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"lateen.dev/lateen/internal/spelling"
)

// structFields lists the JSON names that could stand where path's last name stands in the type of v.
func structFields(v any, path string) []string {
	t := reflect.TypeOf(v)
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		part, _, _ = strings.Cut(part, "[")
		next := fieldByJSON(t, part)
		if next == nil {
			return nil
		}
		t = next
	}
	var names []string
	eachField(t, func(name string, _ reflect.Type) { names = append(names, name) })
	return names
}

func fieldByJSON(t reflect.Type, name string) (found reflect.Type) {
	eachField(t, func(n string, ft reflect.Type) {
		if n == name {
			found = ft
		}
	})
	return found
}

// eachField visits the JSON fields of a struct type, through pointers, slices and inlined structs.
func eachField(t reflect.Type, visit func(string, reflect.Type)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			eachField(f.Type, visit)
		case name != "" && name != "-":
			visit(name, f.Type)
		}
	}
}

// goTypeName says in a user's words what a Go type wants to see.
func goTypeName(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return goTypeName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	}
	return t.String()
}

// protoFix proposes what to write at path of a message instead of what protojson refused.
func protoFix(message protoreflect.MessageDescriptor, path, refusal string) string {
	parts := strings.Split(path, ".")
	for i := 0; i < len(parts); i++ {
		part, _, _ := strings.Cut(parts[i], "[")
		field := message.Fields().ByJSONName(part)
		if field == nil {
			var names []string
			for j := range message.Fields().Len() {
				names = append(names, message.Fields().Get(j).JSONName())
			}
			if near := spelling.Nearest(part, names); near != "" {
				return fmt.Sprintf("did you mean %s?", near)
			}
			return "remove the field"
		}
		if field.IsMap() {
			if i++; i == len(parts) { // the next part is a key of the map, and there is none: the map itself is something else
				return "write an object"
			}
			field = field.MapValue()
		}
		if field.Kind() == protoreflect.EnumKind && i >= len(parts)-1 && strings.Contains(refusal, "enum") {
			var names []string
			for j := range field.Enum().Values().Len() {
				names = append(names, string(field.Enum().Values().Get(j).Name()))
			}
			return "use one of " + strings.Join(names, ", ")
		}
		if field.Message() == nil {
			return scalarFix(field, strings.Contains(parts[i], "["), refusal)
		}
		message = field.Message()
	}
	return "correct the value"
}

// refusedToken is the value that protojson met instead of a text or a list.
var refusedToken = regexp.MustCompile(`(?:invalid value for string field \S+|unexpected token):? (.+)$`)

// scalarFix proposes how to write the value of a field without a message: texts need quotes where YAML takes them for numbers or truth
// values, and lists are written as such.
func scalarFix(field protoreflect.FieldDescriptor, element bool, refusal string) string {
	m := refusedToken.FindStringSubmatch(refusal)
	if m == nil || strings.ContainsAny(m[1], "{}[]") || field.Kind() != protoreflect.StringKind {
		return "correct the value"
	}
	text := strconv.Quote(strings.Trim(m[1], `"`))
	if field.IsList() && !element {
		return "write a list: [" + text + "]"
	}
	return "write " + text + " in quotes"
}
