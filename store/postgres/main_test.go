package postgres

import (
	"os"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }
