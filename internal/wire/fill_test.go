package wire_test

import (
	"errors"
	"math"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// values makes any values of T, but such as the contracts cannot mean: a slice that is empty and not nil, a number of a page or a batch that no int32 holds.
func values[T any](fix func(*T)) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) T {
		var v T
		fill(t, "v", reflect.ValueOf(&v).Elem())
		if fix != nil {
			fix(&v)
		}
		return v
	})
}

func fill(t *rapid.T, label string, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Duration:
		v.SetInt(rapid.OneOf(rapid.SampledFrom([]int64{0, math.MaxInt64, math.MinInt64, 1}), rapid.Int64()).Draw(t, label))
		return
	case time.Time:
		if rapid.Bool().Draw(t, label) {
			v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(-1e9, 1e11).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label)).UTC()))
		}
		return
	case fence.ID, operation.Fingerprint:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, label)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Interface:
		v.Set(reflect.ValueOf(errors.New(rapid.StringN(1, 9, -1).Draw(t, label))))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, label); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(t, label, v.Index(i))
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 9, -1).Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int:
		v.SetInt(int64(rapid.Int32().Draw(t, label)))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, label))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, label)))
	default:
		t.Fatalf("%s: no values of %v", label, v.Type())
	}
}
