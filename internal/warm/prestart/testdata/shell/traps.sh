# wants output
trap "echo at exit" EXIT; trap "echo interrupted" INT; trap; kill -INT $$; echo on; exit 3
