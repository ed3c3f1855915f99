package operation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Fingerprint is of a kind and its request, so that one id is never taken for two requests.
type Fingerprint [sha256.Size]byte

// FingerprintOf is the fingerprint of a kind and the bytes of its request. The caller sees to it that one request always has the same bytes; [encoding/json] writes
// the fields of a struct in one order and the keys of a map sorted, which is enough where one program writes them.
func FingerprintOf(kind string, request []byte) Fingerprint {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(kind)))) // so that no kind runs into its request
	h.Write([]byte(kind))
	h.Write(request)
	return Fingerprint(h.Sum(nil))
}

// String is the fingerprint in hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Same answers a submission under an id that is known: nil if it is the same one, else a [*MismatchError]. It is asked before anything else, also while the operation is in progress.
func (o *Operation) Same(kind string, f Fingerprint) error {
	switch {
	case o.Kind != kind:
		return &MismatchError{ID: o.ID, What: "kind"}
	case o.Fingerprint != f:
		return &MismatchError{ID: o.ID, What: "request"}
	}
	return nil
}
