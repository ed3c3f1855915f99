package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/file"
)

// The claims come from leases in any store; the file knows nothing of it.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }() // a temporary folder
	former, successor := claims()

	stock, err := file.Open(ctx, filepath.Join(folder, "stock.txt"), file.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("former holder:", stock.Replace(ctx, former, []byte("apples 3\n")))
	fmt.Println("successor:", stock.Update(ctx, successor, func(old []byte) ([]byte, error) {
		return append(old, "pears 5\n"...), nil
	}))

	// The former holder was away for a while, and does not know.
	err = stock.Replace(ctx, former, []byte("apples 2\n"))
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		fmt.Println("former holder: refused, newer token", refused.Newer)
	}
	content, err := stock.Read(ctx)
	fmt.Printf("%s%v\n", content, err)
	// Output:
	// former holder: <nil>
	// successor: <nil>
	// former holder: refused, newer token 8
	// apples 3
	// pears 5
	// <nil>
}

// claims are two grants of one name.
func claims() (former, successor fence.Claim) {
	id := func(last byte) fence.ID { return fence.ID{0: 1, 6: 0x70, 8: 0x80, 15: last} }
	former = fence.Claim{Authority: id(1), Name: "stock", Acquisition: id(2), Token: 7}
	successor = fence.Claim{Authority: id(1), Name: "stock", Acquisition: id(3), Token: 8}
	return former, successor
}
