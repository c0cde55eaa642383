# wants output
(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo continued; wait
