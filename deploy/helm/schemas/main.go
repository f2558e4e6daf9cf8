// Writes JSON Schemas of the kinds that the chart makes, from the types of the Go module k8s.io/api, as kubeconform reads them:
//
//	go run . DIR
//
// Fields that a type does not have are errors. Nothing but Go modules is fetched.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type schema map[string]any

// Types whose JSON is not that of their fields.
var special = map[reflect.Type]schema{
	reflect.TypeFor[resource.Quantity]():  {"type": []string{"string", "number"}},
	reflect.TypeFor[intstr.IntOrString](): {"type": []string{"string", "integer"}},
	reflect.TypeFor[meta.Time]():          {"type": []string{"string", "null"}},
	reflect.TypeFor[meta.FieldsV1]():      {"type": "object"},
}

func schemaOf(kind reflect.Type) schema {
	if known, is := special[kind]; is {
		return known
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return schemaOf(kind.Elem())
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return schema{"type": "string"}
		}
		return schema{"type": "array", "items": schemaOf(kind.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(kind.Elem())}
	case reflect.Struct:
		properties := map[string]any{}
		made := schema{"type": "object", "properties": properties, "additionalProperties": false}
		if required := addFields(kind, properties); len(required) > 0 { // an empty list is not valid in draft 4
			made["required"] = required
		}
		return made
	}
	panic(fmt.Sprintf("no schema for %s", kind))
}

// addFields adds the fields of a struct and of those embedded in it. It returns the fields that must be there: names of things, and
// what selects them.
func addFields(kind reflect.Type, properties map[string]any) []string {
	var required []string
	for _, field := range reflect.VisibleFields(kind) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if len(field.Index) > 1 || name == "-" {
			continue
		}
		if name == "" && field.Anonymous {
			required = append(required, addFields(field.Type, properties)...)
			continue
		}
		properties[name] = schemaOf(field.Type)
		if !strings.Contains(options, "omit") && field.Type.Kind() != reflect.Struct {
			required = append(required, name)
		}
	}
	return required
}

func main() {
	for name, kind := range map[string]reflect.Type{
		"daemonset-apps-v1": reflect.TypeFor[apps.DaemonSet](),
		"secret-v1":         reflect.TypeFor[core.Secret](),
	} {
		made := schemaOf(kind)
		text, err := json.Marshal(made)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name+".json"), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
