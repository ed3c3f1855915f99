// Package budgetsql says of a failed call to a database whether it was certainly not sent, was refused, or may have been done. It knows the errors of database/sql and, by
// the methods that they have, those of pgx, and imports no driver.
//
// What it says is about one statement, or one transaction. Several statements outside a transaction are several calls: where the second was not sent, the first may have been done.
package budgetsql
