%% Evaluated by the BEAM before Elixir's command line (-run file script), this
%% starts what that starts, loads what it needs, waits for the program's
%% arguments, environment and directory, and goes on as elixir:start_cli does.
ok = file:delete(".sandbar-wait").
os:unsetenv("ERL_AFLAGS").
{ok, _} = application:ensure_all_started(elixir).
case code:ensure_loaded('Elixir.Logger') of {module, _} -> application:start(logger); _ -> ok end.
[begin application:load(A), {ok, Ms} = application:get_key(A, modules), code:ensure_modules_loaded(Ms) end || A <- [elixir, compiler]].
code:ensure_modules_loaded([erl_eval, erl_scan, erl_parse, erl_lint, erl_expand_records, erl_internal, erl_bits, erl_anno, sofs, digraph, ordsets, gb_sets, gb_trees, queue, epp, beam_lib, io_lib_pretty]).
{Result, _} = 'Elixir.Code':eval_string(<<"Enum.map([1], fn x -> x end)">>).
io:put_chars(user, "READY_MARK").
Line = case io:get_line(user, "") of eof -> erlang:halt(1, [{flush, false}]); L -> L end.
[Stdin, Dir, Count | Rest] = binary:split(base64:decode(string:trim(iolist_to_binary(Line))), <<0>>, [global]).
{Args, Pairs} = lists:split(binary_to_integer(Count), Rest).
[begin [K, V] = binary:split(P, <<"=">>), os:putenv(unicode:characters_to_list(K), unicode:characters_to_list(V)) end || P <- Pairs, P =/= <<>>].
case Dir of <<>> -> ok; _ -> ok = file:set_cwd(unicode:characters_to_list(Dir)) end.
%% An input that is there as a whole has ended long before a program that starts
%% cold reads it. OTP's server of the standard input (the module user, until OTP 25)
%% loses a last line without its end if the end comes while somebody waits for more.
Ended = fun Ended(Tries) ->
  case process_info(whereis(user), [current_function, dictionary]) of
    [{_, {user, _, _}}, {_, Of}] when Tries > 0 ->
      lists:keymember(eof, 1, Of) orelse receive after 1 -> Ended(Tries - 1) end;
    _ -> true
  end
end.
Stdin =:= <<"whole">> andalso Ended(10000).
'Elixir.Kernel.CLI':main(init:get_plain_arguments() ++ [unicode:characters_to_list(A) || A <- Args]).
