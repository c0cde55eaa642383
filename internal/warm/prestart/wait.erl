%% The BEAM evaluates this hook before Elixir's command line (-run file script). It starts the
%% applications that elixir:start_cli starts, loads the modules that programs need, reads the program's
%% arguments, environment and directory from the standard input, and continues as elixir:start_cli.
ok = file:delete(".sandbar-wait").
os:unsetenv("ERL_AFLAGS").
{ok, _} = application:ensure_all_started(elixir).
case code:ensure_loaded('Elixir.Logger') of {module, _} -> application:start(logger); _ -> ok end.
[begin application:load(A), {ok, Ms} = application:get_key(A, modules), code:ensure_modules_loaded(Ms) end || A <- [elixir, compiler]].
code:ensure_modules_loaded([erl_eval, erl_scan, erl_parse, erl_lint, erl_expand_records, erl_internal, erl_bits, erl_anno, sofs, digraph, ordsets, gb_sets, gb_trees, queue, epp, beam_lib, io_lib_pretty]).
{Result, _} = 'Elixir.Code':eval_string(<<"Enum.map([1], fn x -> x end)">>).
io:put_chars(user, "READY_MARK").
Message = fun() -> case io:get_line(user, "") of eof -> erlang:halt(1, [{flush, false}]); L -> base64:decode(string:trim(iolist_to_binary(L))) end end.
[File, Stdin, Dir, Count | Rest] = binary:split(Message(), <<0>>, [global]).
case File of <<>> -> ok; _ -> ok = file:write_file(File, Message(), [raw, exclusive]) end.
{Args, Pairs} = lists:split(binary_to_integer(Count), Rest).
[begin [K, V] = binary:split(P, <<"=">>), os:putenv(unicode:characters_to_list(K), unicode:characters_to_list(V)) end || P <- Pairs, P =/= <<>>].
case Dir of <<>> -> ok; _ -> ok = file:set_cwd(unicode:characters_to_list(Dir)) end.
%% An input known as a whole ends long before a cold program reads it. Until OTP 25 the server of the
%% standard input (module user) loses a last line without a newline if the end comes during a read.
%% So wait until the server has seen the end. It sends no message then: look every millisecond.
Ended = fun Ended(Tries) ->
  case process_info(whereis(user), [current_function, dictionary]) of
    [{_, {user, _, _}}, {_, Of}] when Tries > 0 ->
      lists:keymember(eof, 1, Of) orelse receive after 1 -> Ended(Tries - 1) end;
    _ -> true
  end
end.
Stdin =:= <<"whole">> andalso Ended(10000).
'Elixir.Kernel.CLI':main(init:get_plain_arguments() ++ [unicode:characters_to_list(A) || A <- Args]).
